"""Model training for Potato projects, on the machine that has the GPU.

This file holds the version and nothing else: it travels to training machines together with the
``worker`` room, where nothing but Python's standard library may be imported.
"""

__version__ = "0.1.0"
