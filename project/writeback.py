"""Write-back: predictions become prelabels, in one file that readers never see half-written.

A row of prelabels.jsonl is ``{"instance_id", "schema", "payload", "confidence", "run_id"}``; the payload is what
Potato's annotation page takes: a label, or a list of labels.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..schema.config import Config, Scheme
from .annotations import Check, labelled_items
from .archive import replacing
from .items import read_items
from .spool import compact

#: Why a prediction was not published, in the order of asking.
REASONS = (
    "invalid",
    "schema_not_enabled",
    "unknown_item",
    "already_labelled",
    "shape_not_shown",
    "below_confidence",
)


def publish(
    config: Config, *, run_id: str, predictions: Path, destination: Path, check: Check = lambda: None
) -> dict[str, Any]:
    """Publishes a run's predictions to ``destination`` (prelabels.jsonl); the report.

    For each scheme that the run predicted and write-back names, its rows take the place of all earlier
    ones; other schemes' rows stay. The report counts ``read``, ``published``, ``replaced`` and each of
    REASONS, gives ``schemas`` (published by scheme) and ``notes`` for a person. Rows that cannot be read,
    or whose labels the scheme does not have, count as ``invalid``. Raises UserError for a project that
    cannot be read, OSError for files that cannot.
    """
    rules = config.training["writeback"]
    enabled = [name for name in rules["schemas"] if name in {s.name for s in config.schemes}]
    report: dict[str, Any] = {"run_id": run_id, "read": 0, "published": 0, "replaced": 0}
    report |= dict.fromkeys(REASONS, 0)
    report |= {"min_confidence": rules["min_confidence"], "schemas": dict.fromkeys(enabled, 0)}
    if enabled:
        labelled = labelled_items(config, check=check)
        judge = _Judge(config, enabled, _ids(config, check), labelled)
    else:
        judge = _Judge(config, [], set(), set())
    with alone(destination), replacing(destination) as out:
        for n, row in enumerate(_rows(predictions)):
            if n % 1000 == 0:
                check()
            report["read"] += 1
            reason = judge.reason(row)
            if reason:
                report[reason] += 1
            else:
                report["published"] += 1
                report["schemas"][row["schema_name"]] += 1
                _write(out, row, run_id)
        report["replaced"] = _keep(destination, out, lambda row: row["schema"] not in judge.met)
    report["notes"] = _notes(config, judge, report)
    return report


def retract(destination: Path, run_id: str) -> int:
    """Removes the run's rows from ``destination``; how many there were."""
    if not destination.exists():
        return 0
    with alone(destination), replacing(destination) as out:
        return _keep(destination, out, lambda row: row["run_id"] != run_id)


def published_runs(destination: Path) -> set[str]:
    """The runs whose predictions stand in ``destination``."""
    if not destination.exists():
        return set()
    return {str(row["run_id"]) for row in _rows(destination) if isinstance(row, dict) and "run_id" in row}


class _Judge:
    """Says of each prediction why it is not published. ``met`` are the enabled schemes that were predicted."""

    def __init__(self, config: Config, enabled: list[str], known: set[str], labelled: set[str]):
        self.known, self.labelled = known, labelled
        self.least = config.training["writeback"]["min_confidence"]
        self.schemes = {s.name: s for s in config.schemes}
        self.enabled = set(enabled)
        self.shown = {name: shape_is_shown(config, self.schemes[name]) for name in enabled}
        self.met: set[str] = set()

    def reason(self, row: Mapping[str, Any] | None) -> str | None:
        if row is None or not _is_well_formed(row, self.schemes):
            return "invalid"
        name, item = row["schema_name"], row["instance_id"]
        if name not in self.enabled:
            return "schema_not_enabled"
        self.met.add(name)
        if item not in self.known:
            return "unknown_item"
        if item in self.labelled:
            return "already_labelled"
        if not self.shown[name]:
            return "shape_not_shown"
        return "below_confidence" if row["confidence"] < self.least else None


def shape_is_shown(config: Config, scheme: Scheme) -> bool:
    """Whether Potato's page shows a prelabel of this scheme.

    Seen on 2.12.1: radio, multiselect and a likert with ``labels`` are; a likert with ``size`` puts the value
    into a field that only a slider has, and a select takes none.
    """
    if scheme.annotation_type == "likert":
        entries = config.raw.get("annotation_schemes") or ()
        return any(entry.get("name") == scheme.name and entry.get("labels") for entry in entries)
    return scheme.annotation_type in ("radio", "multiselect")


def _is_well_formed(row: Mapping[str, Any], schemes: Mapping[str, Scheme]) -> bool:
    """Rows come from another machine: nothing in them is taken on trust."""
    name, confidence, payload = row.get("schema_name"), row.get("confidence"), row.get("payload")
    if not isinstance(row.get("instance_id"), str) or not isinstance(name, str) or name not in schemes:
        return False
    if not isinstance(confidence, (int, float)) or isinstance(confidence, bool) or not 0 <= confidence <= 1:
        return False
    scheme = schemes[name]
    if scheme.kind == "multilabel":
        return isinstance(payload, list) and all(isinstance(x, str) and x in scheme.labels for x in payload)
    return isinstance(payload, str) and payload in scheme.labels


def _ids(config: Config, check: Check) -> set[str]:
    ids = set()
    for n, item in enumerate(read_items(config)):
        if n % 1000 == 0:
            check()
        ids.add(item.id)
    return ids


def _rows(path: Path) -> Iterator[Any]:
    """The rows of a JSONL file; None for a line that holds no object."""
    with path.open("rb") as file:
        for line in file:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            yield row if isinstance(row, dict) else None


def _write(out: BinaryIO, row: Mapping[str, Any], run_id: str) -> None:
    line = {
        "instance_id": row["instance_id"],
        "schema": row["schema_name"],
        "payload": row["payload"],
        "confidence": row["confidence"],
        "run_id": run_id,
    }
    out.write((compact(line) + "\n").encode())


def _keep(path: Path, out: BinaryIO, stays: Any) -> int:
    """Copies the rows of the old file that stay; how many did not. Lines that are no rows go."""
    gone: Counter[bool] = Counter()
    if path.exists():
        for row in _rows(path):
            if row is None or not {"schema", "run_id"} <= row.keys():
                continue
            keep = stays(row)
            gone[not keep] += 1
            if keep:
                out.write((compact(row) + "\n").encode())
    return gone[True]


@contextlib.contextmanager
def alone(destination: Path) -> Iterator[None]:
    """Holds off another publish or retract: each reads the file that it replaces."""
    destination.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(destination.with_name(f".{destination.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _notes(config: Config, judge: _Judge, report: Mapping[str, Any]) -> list[str]:
    if not judge.enabled:
        return ["model_training.writeback.schemas names no scheme: nothing is published"]
    notes = []
    if not config.training["writeback"]["include_unlabeled"] and not report["published"]:
        notes.append(
            "model_training.writeback.include_unlabeled is off: only val and test items were predicted, "
            "which people have labelled, so there is nothing to publish"
        )
    for scheme in config.schemes:
        if scheme.name in judge.met and not judge.shown[scheme.name]:
            size = " with a size" if scheme.annotation_type == "likert" else ""
            notes.append(
                f"{scheme.name}: Potato's page shows no prelabels of a {scheme.annotation_type} scheme{size}"
            )
    return notes
