"""A project in numbers, for a person."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..schema.config import Config
from .annotations import Check, read_annotations
from .items import WithoutText, read_items


def summary(config: Config, *, check: Check = lambda: None) -> dict[str, Any]:
    """Counts of a project: items, annotated items, annotators and what they said.

    ``{"items", "annotated", "annotations", "annotators", "machine_annotators", "schemes": {name:
    {"annotation_type", "kind", "items", "annotations", "labels": {label: annotations}}}, "warnings"}``.
    Schemes that cannot be trained have no counts. ``annotated`` items have an answer to one that can, and are
    in the data files; annotations count one answer of one person to one scheme. Raises UserError for a
    project that cannot be read.
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
    return {
        "items": n,
        "annotated": sum(seen),
        "annotations": sum(one.get("annotations", 0) for one in told.values()),
        "annotators": len(used),
        "machine_annotators": found.machines,
        "schemes": told,
        "warnings": [*found.warnings, *filter(None, [without.words()])],
    }
