"""Probabilities that mean what they say: temperature, sigmoid and isotonic calibration, in plain Python.

A calibration is a JSON value {"method": ..., ...} made by ``fit`` and used by ``apply``; scores are rows of
probabilities in label order. "none" leaves them as they are.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

SMALLEST = 1e-6             # probabilities of predictions have six decimals
ENOUGH_FOR_SIGMOID, ENOUGH_FOR_ISOTONIC = 100, 1000
FEWEST = 5                  # items on either side of a label's yes and no, or the label keeps its probabilities
Rows = Sequence[Sequence[float]]


def method_for(n: int) -> str:
    """The method that ``n`` items can bear: one number, two a label, a curve a label."""
    if n < ENOUGH_FOR_SIGMOID:
        return "temperature"
    return "sigmoid" if n < ENOUGH_FOR_ISOTONIC else "isotonic"


def fit(method: str, kind: str, rows: Rows, targets: Sequence[Any]) -> Dict[str, Any]:
    """The calibration that makes the targets most likely."""
    if method == "temperature":
        return {"method": method, "temperature": _temperature(kind, rows, targets)}
    one = _sigmoid if method == "sigmoid" else _isotonic
    curves: List[Any] = []
    for k in range(len(rows[0])):
        hits = [k in t if kind == "multilabel" else k == t for t in targets]
        enough = min(sum(hits), len(hits) - sum(hits)) >= FEWEST
        curves.append(one([row[k] for row in rows], hits) if enough else None)
    return {"method": method, "labels": curves}


def apply(calibration: Mapping[str, Any], kind: str, row: Sequence[float]) -> List[float]:
    """One row of probabilities, calibrated; for nominal and ordinal schemes they sum to 1 again."""
    method = calibration["method"]
    if method == "none":
        return list(row)
    if method == "temperature":
        return _cooled(kind, row, calibration["temperature"])
    found = []
    for p, curve in zip(row, calibration["labels"]):
        if curve is None:
            found.append(p)
        elif method == "sigmoid":
            found.append(_squash(curve[0] * _logit(p) + curve[1]))
        else:
            found.append(_on_curve(curve, p))
    total = sum(found)
    if kind == "multilabel":
        return found
    return [p / total for p in found] if total > 0 else list(row)


def _logit(p: float) -> float:
    p = min(1.0 - SMALLEST, max(SMALLEST, p))
    return math.log(p / (1.0 - p))


def _squash(z: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * z))


# --- temperature --------------------------------------------------------------------------------


def _cooled(kind: str, row: Sequence[float], temperature: float) -> List[float]:
    if kind == "multilabel":
        return [_squash(_logit(p) / temperature) for p in row]
    z = [math.log(max(SMALLEST, p)) / temperature for p in row]
    top = max(z)
    e = [math.exp(v - top) for v in z]
    total = sum(e)
    return [v / total for v in e]


def _temperature(kind: str, rows: Rows, targets: Sequence[Any]) -> float:
    def loss(log_t: float) -> float:
        total = 0.0
        for row, target in zip(rows, targets):
            p = _cooled(kind, row, math.exp(log_t))
            if kind == "multilabel":
                total -= sum(math.log(max(SMALLEST, v if k in target else 1.0 - v)) for k, v in enumerate(p))
            else:
                total -= math.log(max(SMALLEST, p[target]))
        return total
    return math.exp(_lowest(loss, math.log(0.05), math.log(20.0)))


def _lowest(f: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is lowest, by golden section."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = f(a), f(b)
    while high - low > 1e-3:
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = f(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = f(b)
    return (low + high) / 2.0


# --- sigmoid and isotonic, of one label ----------------------------------------------------------


def _sigmoid(scores: Sequence[float], hits: Sequence[bool]) -> Tuple[float, float]:
    """Slope and offset on the log odds, by Newton's method; targets are softened as in Platt (1999)."""
    x = [_logit(p) for p in scores]
    yes = sum(hits)
    no = len(hits) - yes
    t = [(yes + 1.0) / (yes + 2.0) if hit else 1.0 / (no + 2.0) for hit in hits]

    def loss(a: float, b: float) -> float:
        # log(1 + e^z) - t z, without overflow
        z = [a * v + b for v in x]
        return sum(max(v, 0.0) + math.log1p(math.exp(-abs(v))) - w * v for v, w in zip(z, t))
    a, b = 1.0, 0.0
    now = loss(a, b)
    for _ in range(100):
        p = [_squash(a * v + b) for v in x]
        ga = sum((q - w) * v for q, w, v in zip(p, t, x))
        gb = sum(q - w for q, w in zip(p, t))
        weight = [q * (1.0 - q) for q in p]
        haa = sum(w * v * v for w, v in zip(weight, x)) + 1e-9
        hab = sum(w * v for w, v in zip(weight, x))
        hbb = sum(weight) + 1e-9
        det = haa * hbb - hab * hab
        if det <= 0 or abs(ga) + abs(gb) < 1e-9:
            break
        da, db = -(hbb * ga - hab * gb) / det, -(haa * gb - hab * ga) / det
        step = 1.0
        while step > 1e-6 and loss(a + step * da, b + step * db) > now:
            step /= 2.0
        if step <= 1e-6:
            break
        a, b = a + step * da, b + step * db
        before, now = now, loss(a, b)
        if before - now < 1e-10:
            break
    # Turned around it would call the likelier label the less likely one.
    return (a, b) if a > 0 else (0.0, math.log((yes + 1.0) / (no + 1.0)))


def _isotonic(scores: Sequence[float], hits: Sequence[bool]) -> List[Tuple[float, float]]:
    """Points of the rising curve that is nearest to yes and no, by pooling neighbours that are out of order."""
    at: Dict[float, List[bool]] = {}
    for x, hit in zip(scores, hits):
        at.setdefault(x, []).append(hit)
    pooled: List[List[float]] = []              # [sum of scores, sum of hits, count]
    for x in sorted(at):
        pooled.append([x * len(at[x]), float(sum(at[x])), float(len(at[x]))])
        while len(pooled) > 1 and pooled[-2][1] * pooled[-1][2] >= pooled[-1][1] * pooled[-2][2]:
            last = pooled.pop()
            pooled[-1] = [a + b for a, b in zip(pooled[-1], last)]
    edge = 1.0 / (len(scores) + 2.0)            # nothing is certain after so many items
    return [(s / n, min(1.0 - edge, max(edge, y / n))) for s, y, n in pooled]


def _on_curve(curve: Sequence[Sequence[float]], x: float) -> float:
    at = bisect_right([point[0] for point in curve], x)
    if at == 0:
        return curve[0][1]
    if at == len(curve):
        return curve[-1][1]
    (x0, y0), (x1, y1) = curve[at - 1], curve[at]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
