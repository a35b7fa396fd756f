"""Several annotators to one label an item: consensus (Dawid-Skene) or majority, and how sure it is."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from . import agreement
from .dawid_skene import consensus, evenly, nearby, shares
from .votes import Pattern, Votes

#: Probabilities nearer than this are a tie.
HAIR = 1e-6

Beliefs = Mapping[Pattern, Mapping[int, float]]


class Joined:
    """The joined labels of one scheme. ``facts`` is what the manifest says about how they were joined."""

    def __init__(self, votes: Votes, seed: int, decisions: dict[int, _Decision], facts: dict[str, Any]):
        self.votes = votes
        self.facts = facts
        self._seed = seed
        self._decisions = decisions

    def label(self, item_id: str, node: int) -> str | list[str]:
        """The label of an item with these answers, or (multilabel) its labels in the scheme's order.

        A tie is broken by a seeded hash of item and label, so that it is the same in every run and favours
        no label.
        """
        certain, tied, fallback = self._decisions[node]
        labels = self.votes.scheme.labels
        if self.votes.scheme.kind != "multilabel":
            return labels[certain[0] if certain else self._lot(item_id, tied)]
        chosen = set(certain) | {k for k in tied if self._draw(item_id, k)[0] & 1}
        if not chosen:  # everybody ticked something, so something is true: the likeliest
            chosen = {self._lot(item_id, fallback)}
        return [labels[k] for k in sorted(chosen)]

    def _lot(self, item_id: str, tied: tuple[int, ...]) -> int:
        return tied[0] if len(tied) == 1 else min(tied, key=lambda k: self._draw(item_id, k))

    def _draw(self, item_id: str, k: int) -> bytes:
        scheme = self.votes.scheme
        text = f"{self._seed}:{scheme.name}:{item_id}:{scheme.labels[k]}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


#: Labels that are decided, labels that are tied, and what to fall back on when none is left (multilabel).
_Decision = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def join(
    votes: Votes,
    seen: bytes | bytearray,
    *,
    method: str,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> Joined:
    """Joins the answers to the items that are ``seen`` (1 by item number) by consensus or majority."""
    counts = votes.count(seen)
    by_node = {node: votes.pattern(node) for node in counts}
    patterns = {by_node[node]: n for node, n in counts.items()}
    if votes.scheme.kind == "multilabel":
        beliefs = _believe_each(votes, patterns, method, check)
        decide = _decide_each
    else:
        beliefs = _believe(votes, patterns, method, check)
        decide = _decide_nearest if votes.scheme.kind == "ordinal" else _decide_one
    decisions = {node: decide(pattern, beliefs[pattern]) for node, pattern in by_node.items()}
    facts = _facts(votes, patterns, beliefs)
    facts["ties"] = sum(n for node, n in counts.items() if decisions[node][1] or len(decisions[node][2]) > 1)
    return Joined(votes, seed, decisions, facts)


def _believe(
    votes: Votes, patterns: Mapping[Pattern, int], method: str, check: Callable[[], None]
) -> Beliefs:
    if method == "majority":
        return {pattern: shares(pattern) for pattern in patterns}
    n = len(votes.scheme.labels)
    return consensus(patterns, n, (nearby if votes.scheme.kind == "ordinal" else evenly)(n), check=check)


def _believe_each(
    votes: Votes, patterns: Mapping[Pattern, int], method: str, check: Callable[[], None]
) -> Beliefs:
    """For each pattern the probability that each label applies: one question a label, ticked or not."""
    beliefs: dict[Pattern, dict[int, float]] = {pattern: {} for pattern in patterns}
    for k in range(len(votes.scheme.labels)):
        check()
        asked = {pattern: tuple((a, int(k in votes.values[c])) for a, c in pattern) for pattern in patterns}
        counts: Counter[Pattern] = Counter()
        for pattern, answers in asked.items():
            counts[answers] += patterns[pattern]
        if method == "majority":
            answered = {answers: shares(answers) for answers in counts}
        else:
            answered = consensus(counts, 2, evenly(2), check=check)
        for pattern, answers in asked.items():
            beliefs[pattern][k] = answered[answers].get(1, 0.0)
    return beliefs


def _top(belief: Mapping[int, float]) -> tuple[int, ...]:
    best = max(belief.values())
    return tuple(k for k in sorted(belief) if best - belief[k] < HAIR)


def _decide_one(pattern: Pattern, belief: Mapping[int, float]) -> _Decision:
    top = _top(belief)
    return (top, (), ()) if len(top) == 1 else ((), top, ())


def _decide_nearest(pattern: Pattern, belief: Mapping[int, float]) -> _Decision:
    """Ordinal: of tied labels the one nearest to the mean of the answers, where one is."""
    certain, tied, _ = _decide_one(pattern, belief)
    if not tied:
        return certain, (), ()
    mean = sum(code for _, code in pattern) / len(pattern)
    near = min(abs(k - mean) for k in tied)
    return (), tuple(k for k in tied if abs(k - mean) - near < HAIR), ()


def _decide_each(pattern: Pattern, belief: Mapping[int, float]) -> _Decision:
    certain = tuple(k for k, p in belief.items() if p - 0.5 >= HAIR)
    tied = tuple(k for k, p in belief.items() if abs(p - 0.5) < HAIR)
    return certain, tied, () if certain else _top(belief)


def _facts(votes: Votes, patterns: Mapping[Pattern, int], beliefs: Beliefs) -> dict[str, Any]:
    """The manifest's figures; ``per_annotator`` is by annotator number (pseudonyms come later)."""
    given: Counter[int] = Counter()
    right: Counter[int] = Counter()
    multilabel = votes.scheme.kind == "multilabel"
    for pattern, n in patterns.items():
        belief = beliefs[pattern]
        for annotator, code in pattern:
            given[annotator] += n
            if multilabel:
                ticked = votes.values[code]
                p = sum(q if k in ticked else 1 - q for k, q in belief.items()) / len(belief)
            else:
                p = belief[code]
            right[annotator] += n * p  # type: ignore[assignment]
    shared = {pattern: n for pattern, n in patterns.items() if len(pattern) > 1}
    split = sum(n for pattern, n in shared.items() if len({code for _, code in pattern}) > 1)
    return {
        "items": sum(patterns.values()),
        "annotations": sum(given.values()),
        "annotators": len(given),
        "shared_items": sum(shared.values()),
        "disagreements": split,
        "agreement": _round(agreement.pairwise(shared, votes.values)),
        "alpha": _round(_alpha(votes, shared)),
        "two_answers": votes.unresolved,
        "unknown_labels": sum(votes.unknown.values()),
        "per_annotator": {
            a: {"annotations": given[a], "with_consensus": _round(right[a] / given[a])} for a in sorted(given)
        },
    }


def _alpha(votes: Votes, shared: Mapping[Pattern, int]) -> float | None:
    if votes.scheme.kind != "multilabel":
        return agreement.alpha(shared, ordinal=votes.scheme.kind == "ordinal")
    each = []
    for k in range(len(votes.scheme.labels)):
        counts: Counter[Pattern] = Counter()
        for pattern, n in shared.items():
            counts[tuple((a, int(k in votes.values[c])) for a, c in pattern)] += n
        each.append(agreement.alpha(counts))
    known = [value for value in each if value is not None]
    return sum(known) / len(known) if known else None


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
