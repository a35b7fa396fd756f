"""What a run predicted: how sure it was, how well that is calibrated, and the items it was least sure of.

One pass over predictions.jsonl, then one over the bundle for texts and labels; kept in memory for the runs
that were looked at lately.
"""

from __future__ import annotations

import heapq
import json
import tarfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from ..runtime import places
from ..runtime.shapes import number

BINS = 20
CALIBRATION_BINS = 10
LEAST_CERTAIN = 50
_TEXT = 600
_MOST_RUNS = 16
#: Larger ones are counted in a thread, so that no page waits for them.
_LARGE = 8 * 1024 * 1024
_SPLITS = ("train", "val", "test", "unlabeled")
_LONGEST_NAME = 1000
_MOST_HELD_OUT = 500_000
_PARTS = ("val.jsonl", "test.jsonl", "unlabeled.jsonl")


class Unsure(NamedTuple):
    """A prediction with little confidence."""

    confidence: float
    item: str
    payload: Any
    split: str
    text: str = ""
    label: Any = None  #: what people said, for a held-out item


@dataclass
class SchemaInsight:
    """Of one schema: predictions by split, confidence in BINS bins, calibration bins, the least certain."""

    counts: dict[str, int] = field(default_factory=dict)
    histogram: list[int] = field(default_factory=lambda: [0] * BINS)
    calibration: list[tuple[float, float, int]] = field(default_factory=list)
    unsure: list[Unsure] = field(default_factory=list)


Insight = dict[str, SchemaInsight]


class Insights:
    """Insights by run directory. ``of`` gives None while a large run is being counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Path, int, int], Insight | None] = OrderedDict()

    def of(self, run_dir: Path) -> Insight | None:
        path = run_dir / places.PREDICTIONS
        try:
            about = path.stat()
        except OSError:
            return {}
        key = (run_dir, about.st_mtime_ns, about.st_size)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            self._kept[key] = None
            while len(self._kept) > _MOST_RUNS:
                self._kept.popitem(last=False)
        if about.st_size > _LARGE:
            threading.Thread(target=self._count, args=(key,), daemon=True).start()
            return None
        return self._count(key)

    def _count(self, key: tuple[Path, int, int]) -> Insight:
        try:
            found = read(key[0])
        except (OSError, ValueError, tarfile.TarError, EOFError):
            found = {}
        except BaseException:
            with self._lock:
                self._kept.pop(key, None)  # nobody is counting
            raise
        with self._lock:
            self._kept[key] = found
        return found


def read(run_dir: Path) -> Insight:
    """Reads the run's files. Raises OSError, ValueError, TarError for what cannot be read."""
    found: Insight = {}
    heaps: dict[str, list[tuple[float, int, Unsure]]] = {}
    held_out: dict[tuple[str, str], tuple[Any, float]] = {}
    for n, row in enumerate(_rows(run_dir / places.PREDICTIONS)):
        schema, item, payload = row.get("schema_name"), row.get("instance_id"), row.get("payload")
        p = number(row.get("confidence"))
        if not _is_name(schema) or not _is_name(item) or p is None or not _is_labels(payload):
            continue
        if schema not in found and len(found) >= 100:
            continue
        p, split = min(1.0, max(0.0, float(p))), row.get("split")
        split = split if isinstance(split, str) and split in _SPLITS else "other"
        one = found.setdefault(schema, SchemaInsight())
        one.counts[split] = one.counts.get(split, 0) + 1
        one.histogram[min(BINS - 1, int(p * BINS))] += 1
        if split in ("val", "test") and len(held_out) < _MOST_HELD_OUT:
            held_out[schema, item] = (payload, p)
        unsure = Unsure(p, item, payload, split)
        heap = heaps.setdefault(schema, [])
        # a heap's smallest comes first, so the surest of the unsure is on top
        (heapq.heappush if len(heap) < LEAST_CERTAIN else heapq.heappushpop)(heap, (-p, -n, unsure))
    _with_bundle(run_dir, found, heaps, held_out)
    return found


def _with_bundle(run_dir: Path, found: Insight, heaps: Any, held_out: Any) -> None:
    """Joins the items' texts and people's labels from the bundle."""
    wanted = {unsure.item for heap in heaps.values() for _, _, unsure in heap}
    texts: dict[str, str] = {}
    labels: dict[str, dict[str, Any]] = {}
    bins = {schema: [[0.0, 0, 0] for _ in range(CALIBRATION_BINS)] for schema in found}
    for row in _bundle_rows(run_dir / places.BUNDLE):
        item, given = row.get("id"), row.get("labels")
        if not isinstance(item, str):
            continue
        if item in wanted:
            texts[item] = str(row.get("text", ""))[:_TEXT]
            labels[item] = given if isinstance(given, dict) else {}
        for schema, label in (given if isinstance(given, dict) else {}).items():
            guess = held_out.get((schema, item))
            if guess is not None and not isinstance(label, list):
                one = bins[schema][min(CALIBRATION_BINS - 1, int(guess[1] * CALIBRATION_BINS))]
                one[0], one[1], one[2] = one[0] + guess[1], one[1] + (guess[0] == label), one[2] + 1
    for schema, told in found.items():
        told.calibration = [(total / n, right / n, int(n)) for total, right, n in bins[schema] if n]
        rows = sorted((entry[2] for entry in heaps.get(schema, [])), key=lambda u: u.confidence)
        told.unsure = [u._replace(text=texts.get(u.item, ""), label=labels.get(u.item, {}).get(schema)) for u in rows]


def _is_name(value: Any) -> TypeGuard[str]:
    """Of a scheme, an item or a label, as far as a page can show it. What an agent sends may be longer than any."""
    return isinstance(value, str) and len(value) <= _LONGEST_NAME


def _is_labels(payload: Any) -> bool:
    return _is_name(payload) or (isinstance(payload, list) and len(payload) <= 100 and all(map(_is_name, payload)))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        yield from _objects(file)


def _bundle_rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            if member.name in _PARTS and (file := archive.extractfile(member)) is not None:
                yield from _objects(file)


def _objects(lines: Any) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row
