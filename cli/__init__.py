"""A front door: the command ``potato``."""
