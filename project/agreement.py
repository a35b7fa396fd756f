"""How much annotators agree: mean pairwise agreement and Krippendorff's alpha."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from .votes import Pattern


def pairwise(patterns: Mapping[Pattern, int], values: list[tuple[int, ...]]) -> float | None:
    """Mean over items with two answers or more of the mean agreement of their pairs; None without such items.

    Two answers agree by the labels that both hold over those that either holds: 1 or 0 for single answers.
    """
    total, items = 0.0, 0
    for pattern, n in patterns.items():
        if len(pattern) > 1:
            counts = Counter(code for _, code in pattern)
            same = sum(k * (k - 1) / 2 for k in counts.values())
            mixed = sum(
                counts[a] * counts[b] * _overlap(values[a], values[b]) for a, b in combinations(counts, 2)
            )
            total += n * (same + mixed) / (len(pattern) * (len(pattern) - 1) / 2)
            items += n
    return total / items if items else None


def _overlap(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    return len(set(a) & set(b)) / len(set(a) | set(b))


def alpha(patterns: Mapping[Pattern, int], *, ordinal: bool = False) -> float | None:
    """Krippendorff's alpha over codes, nominal or ordinal (codes in the scheme's order).

    None when no item has two answers, or when all of those answers are the same.
    """
    pairs: Counter[tuple[int, int]] = Counter()
    for pattern, n in patterns.items():
        if len(pattern) < 2:
            continue
        counts = Counter(code for _, code in pattern)
        for a, n_a in counts.items():
            for b, n_b in counts.items():
                pairs[a, b] += n * n_a * (n_b - (a == b)) / (len(pattern) - 1)  # type: ignore[assignment]
    totals: Counter[int] = Counter()
    for (a, _), weight in pairs.items():
        totals[a] += weight
    everything = sum(totals.values())
    distance = _ordinal_distance(totals) if ordinal else lambda a, b: float(a != b)
    seen = sum(weight * distance(a, b) for (a, b), weight in pairs.items())
    expected = sum(totals[a] * totals[b] * distance(a, b) for a in totals for b in totals)
    return 1 - (everything - 1) * seen / expected if expected else None


def _ordinal_distance(totals: Mapping[int, float]):
    below, reached = {}, 0.0
    for code in sorted(totals):
        below[code] = reached + totals[code] / 2
        reached += totals[code]
    return lambda a, b: (below[a] - below[b]) ** 2
