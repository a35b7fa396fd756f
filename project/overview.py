"""A project in numbers, for a person."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..schema.config import Config
from .aggregate import join
from .annotations import Annotations, Check, read_annotations
from .items import WithoutText, read_items
from .votes import Votes


def summary(config: Config, *, check: Check = lambda: None, joined: bool = False) -> dict[str, Any]:
    """Counts of a project: items, annotated items, annotators and what they said.

    ``{"items", "annotated", "annotations", "annotators", "machine_annotators", "schemes": {name:
    {"annotation_type", "kind", "items", "annotations", "labels": {label: annotations}}}, "warnings"}``.
    Schemes that cannot be trained have no counts. ``annotated`` items have an answer to one that can, and are
    in the data files; annotations count one answer of one person to one scheme. With ``joined`` a scheme also has
    ``shared_items, disagreements, agreement, alpha, ties`` as the bundle's manifest has them, and ``people``: {name:
    {"annotations", "with_consensus"}}. Raises UserError for a project that cannot be read.
    """
    schemes = [scheme for scheme in config.schemes if scheme.kind]
    found = read_annotations(config, schemes, check=check)
    seen = bytearray(len(found.items))
    n = 0
    without = WithoutText()
    for n, item in enumerate(read_items(config, without), 1):
        number = found.items.get(item.id)
        if number is not None:
            seen[number] = 1
        if n % 1000 == 0:
            check()
    told: dict[str, Any] = {}
    used: set[int] = set()
    for scheme in config.schemes:
        told[scheme.name] = {"annotation_type": scheme.annotation_type, "kind": scheme.kind}
        if scheme.kind:
            votes = found.votes[scheme.name]
            counts: Counter[str] = Counter(dict.fromkeys(scheme.labels, 0))
            answers = items = 0
            for node, times in votes.count(seen).items():
                pattern = votes.pattern(node)
                items, answers = items + times, answers + times * len(pattern)
                for annotator, code in pattern:
                    used.add(annotator)
                    for k in votes.values[code]:
                        counts[scheme.labels[k]] += times
            told[scheme.name] |= {"items": items, "annotations": answers, "labels": dict(counts)}
            if joined and answers:
                told[scheme.name] |= _joined(config, found, votes, seen, check)
    return {
        "items": n,
        "annotated": sum(seen),
        "annotations": sum(one.get("annotations", 0) for one in told.values()),
        "annotators": len(used),
        "machine_annotators": found.machines,
        "schemes": told,
        "warnings": [*found.warnings, *filter(None, [without.words()])],
    }


def _joined(
    config: Config, found: Annotations, votes: Votes, seen: bytearray, check: Check
) -> dict[str, Any]:
    """What joining the answers says of them and of those who gave them, who gave most first."""
    rules = config.training
    facts = join(votes, seen, method=rules["aggregation"], seed=int(rules["split_seed"]), check=check).facts
    people = sorted(facts["per_annotator"].items(), key=lambda one: (-one[1]["annotations"], found.people[one[0]]))
    return {
        **{name: facts[name] for name in ("shared_items", "disagreements", "agreement", "alpha", "ties")},
        "people": {found.people[a]: about for a, about in people},
    }
