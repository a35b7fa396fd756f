"""Which split an item belongs to: a seeded hash of its id, and of nothing else.

Other items, their number and their order, labels and runs change nothing, so a test item stays a test item
for as long as seed and shares stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

SPLITS = ("train", "val", "test")


def place(item_id: str, seed: int) -> float:
    """Where the id falls in [0, 1): the first 52 bits of SHA-256 over ``<seed>:<id>``."""
    digest = hashlib.sha256(f"{seed}:{item_id}".encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 12) / 2.0**52


def split_of(item_id: str, seed: int, shares: Mapping[str, float]) -> str:
    """The split of an item. ``shares`` are of train, val and test, and add up to 1."""
    at = place(item_id, seed)
    reached = 0.0
    last = "train"
    for name in SPLITS:
        share = shares.get(name, 0.0)
        if share > 0:
            reached, last = reached + share, name
            if at < reached:
                return name
    return last  # rounding: the shares add up to a hair less than 1
