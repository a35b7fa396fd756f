"""The manifest: what a bundle holds, and what is known of how its labels came about."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..schema.config import Config, Scheme
from .aggregate import Joined
from .annotations import Annotations
from .splits import SPLITS
from .spool import Label, Spool, compact


def manifest_of(
    config: Config,
    schemes: Sequence[Scheme],
    annotations: Annotations,
    spool: Spool,
    joined: dict[str, Joined],
) -> dict[str, Any]:
    """The manifest. No name of a person is in it: annotators are a1, a2, ... in no telling order."""
    seed = int(config.training["split_seed"])
    used = sorted({a for result in joined.values() for a in result.facts["per_annotator"]})
    used.sort(key=lambda a: _order(seed, annotations.people[a]))
    alias = {a: f"a{n}" for n, a in enumerate(used, 1)}
    per_schema = {}
    for scheme in schemes:
        facts = dict(joined[scheme.name].facts)
        by = {alias[a]: facts["per_annotator"][a] for a in used if a in facts["per_annotator"]}
        counts = spool.counts[scheme.name]
        facts["label_counts"] = _by_label(scheme, counts)
        facts["per_annotator"] = by
        per_schema[scheme.name] = facts
    manifest: dict[str, Any] = {
        "v": 1,
        "digest": "",
        "modality": "text",
        "schemas": [
            {
                "name": scheme.name,
                "annotation_type": scheme.annotation_type,
                "kind": scheme.kind,
                "labels": list(scheme.labels),
            }
            for scheme in schemes
        ],
        "labels": {scheme.name: list(scheme.labels) for scheme in schemes},
        "splits": {
            part: {"path": f"{part}.jsonl", "n": rows.n, "format": "jsonl", "sha256": rows.sha256()}
            for part, rows in spool.parts.items()
        },
        "media_dir": None,
        "aggregation": {"method": config.training["aggregation"], "per_schema": per_schema},
        "split_seed": seed,
        "shares": {name: config.training["splits"][name] for name in SPLITS},
        "label_digest": spool.label_digest,
        "annotators": len(used),
        "machine_annotators": annotations.machines,
        "pre_annotation_seeds": {
            scheme.name: sum(spool.seen[i] for i in annotations.votes[scheme.name].confirmed)
            for scheme in schemes
        },
        "items_without_text": spool.without.n,
    }
    manifest["digest"] = hashlib.sha256(compact(manifest).encode()).hexdigest()
    return manifest


def _order(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode("utf-8", "replace")).digest()


def _by_label(scheme: Scheme, counts: Counter[Label]) -> dict[str, int]:
    if scheme.kind != "multilabel":
        return {label: counts[label] for label in scheme.labels}
    totals = dict.fromkeys(scheme.labels, 0)
    for key, n in counts.items():
        for label in key:
            totals[label] += n
    return totals
