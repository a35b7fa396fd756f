"""Whose data: reading a Potato project, labels, splits, the bundle, write-back."""

from .bundle import Bundle, build_bundle, trainable
from .items import Item, read_items

__all__ = ["Bundle", "Item", "build_bundle", "read_items", "trainable"]
