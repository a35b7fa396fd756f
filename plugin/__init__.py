"""Inside Potato: with ``plugins: [training-backends]`` the annotation server invokes this runtime.

Potato loads ``register`` when it reads a config, be it to serve it or only to validate it: nothing is
started, opened or written here. Names of Potato are used in ``names`` alone.
"""

from __future__ import annotations

from typing import Any


def register(api: Any) -> None:
    """The entry point ``training-backends`` of the group ``potato.plugins``. Never raises."""
    from .bridge import install

    install(api)
