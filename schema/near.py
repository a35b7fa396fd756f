"""The nearest known word to one that was mistyped."""

from __future__ import annotations


def distance(a: str, b: str, limit: int = 3) -> int:
    """Letters to insert, delete, replace or swap with a neighbour to get from a to b; at most ``limit``."""
    if abs(len(a) - len(b)) >= limit:
        return limit
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if last and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) >= limit:
            return limit
    return min(row[-1], limit)


def folded(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "").replace(" ", "").replace(".", "")


def nearest(word: str, known) -> str | None:
    """The word of ``known`` that ``word`` most likely means, or None when none is near.

    Near is one typing slip in a short word and up to two in a longer one, whatever its case and dashes.
    """
    if len(word) > 80:
        return None
    mine = folded(word)
    limit = 2 if len(mine) <= 4 else 3
    best, best_distance = None, limit
    for candidate in known:
        other = folded(candidate)
        d = 0 if other == mine else distance(mine, other, limit)
        if d < best_distance:
            best, best_distance = candidate, d
    return best
