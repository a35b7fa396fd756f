"""What a learning curve says: how good at each number of labels, and whether more of them still pay. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

Z = 1.959964  #: of a 95 % interval
#: A gain that is surely below this is none.
SMALL = 0.01
PAYS, LEVEL, UNKNOWN = "pays", "level", "unknown"


class Interval(NamedTuple):
    value: float
    low: float
    high: float


def share_right(right: int, n: int) -> Interval:
    """How often it was right, with Wilson's interval."""
    p, z2 = right / n, Z * Z
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # at the ends the bounds are exact, but for the rounding
    return Interval(p, middle - half if right else 0.0, middle + half if right < n else 1.0)


def gain(before: Sequence[bool], after: Sequence[bool]) -> Interval:
    """By how much ``after`` is right more often than ``before`` on the same items, with the interval of Agresti and
    Min (2005): half an item is added to each of the four cells, so that two models that never differed are not
    taken for the same for ever.
    """
    won = sum(b and not a for a, b in zip(before, after, strict=True))
    lost = sum(a and not b for a, b in zip(before, after, strict=True))
    n, w, x = len(before) + 2.0, won + 0.5, lost + 0.5
    middle = (w - x) / n
    half = Z * math.sqrt(max(0.0, w + x - (w - x) ** 2 / n)) / n
    return Interval((won - lost) / len(before), max(-1.0, middle - half), min(1.0, middle + half))


def verdict(last: Interval) -> str:
    """Whether more labels pay, from the gain that the last quarter of them brought."""
    if last.low > 0:
        return PAYS
    return LEVEL if last.high < SMALL else UNKNOWN


def words(found: str, last: Interval, n: int) -> str:
    brought = (
        f"the last quarter of the labels brought {100 * last.value:+.1f} points of accuracy "
        f"(95 % interval {100 * last.low:+.1f} to {100 * last.high:+.1f}, on {n} held-out items)"
    )
    if found == PAYS:
        return f"more labels still pay: {brought}"
    if found == LEVEL:
        return f"more labels hardly pay any more: {brought}"
    return f"it cannot be told yet whether more labels pay: {brought}; more held-out items would narrow it"


def summary(points: Sequence[tuple[float, int, Sequence[bool], float | None]]) -> dict[str, Any]:
    """The curve of one scheme from (share, train items, right or not by held-out item, macro-F1), smallest first."""
    n = len(points[-1][2])
    rows = [
        {"share": share, "train": train, "macro_f1": macro_f1,
         **dict(zip(("accuracy", "low", "high"), share_right(sum(right), len(right)), strict=True))}
        for share, train, right, macro_f1 in points
    ]
    last = gain(points[-2][2], points[-1][2])
    found = verdict(last)
    return {"held_out": n, "points": rows, "gain": last._asdict(), "verdict": found, "words": words(found, last, n)}
