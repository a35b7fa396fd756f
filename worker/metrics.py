"""Held-out scores, in plain Python: accuracy, macro-F1, per label, confusion, calibration error.

Scores are lists of probabilities in the scheme's label order: for nominal and ordinal schemes they
sum to 1, for multilabel each label has its own.
"""

from __future__ import annotations

from typing import Any, Dict, Sequence, Tuple

Scores = Sequence[float]
ENOUGH = 5          # metrics over fewer items are not given: one more item could turn them over
ECE_BINS = 10
THRESHOLD = 0.5


def choose(kind: str, scores: Scores) -> Tuple[Any, float]:
    """The predicted index, or tuple of indices for multilabel, and the confidence in that whole answer.

    Of labels that are equally likely the scheme's first is taken. A multilabel answer is never empty:
    an item without any tick is not told from a skipped one, so no model ever saw such an answer.
    """
    best = max(range(len(scores)), key=lambda n: (scores[n], -n))
    if kind != "multilabel":
        return best, float(scores[best])
    chosen = tuple(n for n, p in enumerate(scores) if p >= THRESHOLD) or (best,)
    confidence = 1.0
    for n, p in enumerate(scores):
        confidence *= p if n in chosen else 1.0 - p
    return chosen, float(confidence)


def measure(kind: str, labels: Sequence[str], truths: Sequence[Any], scores: Sequence[Scores]) -> Dict[str, Any]:
    """The metrics of one split: see docs/events.md for the keys. All numbers are fractions of 1."""
    n = len(truths)
    if n < ENOUGH:
        return {"n": n, "note": "fewer than %d items: no scores are given" % ENOUGH}
    guesses = [choose(kind, s)[0] for s in scores]
    result = {"n": n, "accuracy": sum(t == g for t, g in zip(truths, guesses)) / n}
    per_label = _per_label(kind, labels, truths, guesses)
    counted = [m["f1"] for m in per_label.values() if m["n"] or m["guessed"]]
    result["macro_f1"] = sum(counted) / len(counted) if counted else 0.0
    result["per_label"] = {k: {f: m[f] for f in ("precision", "recall", "f1", "n")} for k, m in per_label.items()}
    if kind == "multilabel":
        pairs = [(p, k in t) for t, s in zip(truths, scores) for k, p in enumerate(s)]
        result["ece"] = calibration_error([p for p, _ in pairs], [hit for _, hit in pairs])
        return result
    cells: Dict[Tuple[int, int], int] = {}
    for pair in zip(truths, guesses):
        cells[pair] = cells.get(pair, 0) + 1
    result["confusion"] = {"cells": [[t, g, cells[t, g]] for t, g in sorted(cells)]}
    hits = [t == g for t, g in zip(truths, guesses)]
    result["ece"] = calibration_error([s[g] for s, g in zip(scores, guesses)], hits)
    if kind == "ordinal":
        result["mae"] = sum(abs(t - g) for t, g in zip(truths, guesses)) / n
    return result


def _per_label(kind: str, labels: Sequence[str], truths: Sequence[Any],
               guesses: Sequence[Any]) -> Dict[str, Dict[str, Any]]:
    if kind == "multilabel":
        truths, guesses = [set(t) for t in truths], [set(g) for g in guesses]
    else:
        truths, guesses = [(t,) for t in truths], [(g,) for g in guesses]
    have, said, both = [0] * len(labels), [0] * len(labels), [0] * len(labels)
    for t, g in zip(truths, guesses):
        for k in t:
            have[k] += 1
            both[k] += k in g
        for k in g:
            said[k] += 1
    result = {}
    for k, label in enumerate(labels):
        precision = both[k] / said[k] if said[k] else 0.0
        recall = both[k] / have[k] if have[k] else 0.0
        f1 = 2.0 * both[k] / (have[k] + said[k]) if have[k] + said[k] else 0.0
        result[label] = {"precision": precision, "recall": recall, "f1": f1, "n": have[k], "guessed": said[k]}
    return result


def macro_f1(kind: str, labels: Sequence[str], truths: Sequence[Any], scores: Sequence[Scores]) -> float:
    """Macro-F1 alone, over the labels that occur or are predicted; what the best epoch is chosen by."""
    guesses = [choose(kind, s)[0] for s in scores]
    counted = [m["f1"] for m in _per_label(kind, labels, truths, guesses).values() if m["n"] or m["guessed"]]
    return sum(counted) / len(counted) if counted else 0.0


def calibration_error(confidences: Sequence[float], hits: Sequence[bool], bins: int = ECE_BINS) -> float:
    """Expected calibration error: mean distance of confidence from how often it was right, in equal-width bins."""
    n = len(confidences)
    if not n:
        return 0.0
    total, right, number = [0.0] * bins, [0] * bins, [0] * bins
    for p, hit in zip(confidences, hits):
        b = min(bins - 1, max(0, int(p * bins)))
        total[b] += p
        right[b] += bool(hit)
        number[b] += 1
    return sum(abs(total[b] - right[b]) for b in range(bins)) / n
