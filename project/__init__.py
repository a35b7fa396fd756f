"""Whose data: reading a Potato project, labels, splits, the bundle, write-back."""

from .bundle import Bundle, build_bundle, trainable
from .items import Item, read_items
from .overview import summary
from .writeback import publish, retract

__all__ = ["Bundle", "Item", "build_bundle", "publish", "read_items", "retract", "summary", "trainable"]
