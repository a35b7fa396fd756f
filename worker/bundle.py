"""Reading a bundle: its manifest, and its rows as a stream."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from .failures import BadBundle

if TYPE_CHECKING:
    from .spec import SchemaSpec, Spec

MANIFEST_FILE = "manifest.json"
BUNDLE_VERSION = 1
SPLITS = ("train", "val", "test", "unlabeled")


class Row(NamedTuple):
    """One item. ``text`` is "" for an item that has none; ``labels`` has an entry per scheme that somebody labelled."""

    id: str
    text: str
    labels: Mapping[str, Any]


class Bundle:
    """An unpacked bundle. ``on_warning`` is called with a line for each kind of odd row, at the end of a split."""

    def __init__(self, directory: str, on_warning: Callable[[str], None] = lambda text: None) -> None:
        self.directory = directory
        self.on_warning = on_warning
        self.manifest = _read_manifest(os.path.join(directory, MANIFEST_FILE))

    @property
    def digest(self) -> Optional[str]:
        return self.manifest.get("digest")

    def size(self, split: str) -> Optional[int]:
        """How many items the manifest counts in the split, or None."""
        entry = self.manifest.get("splits", {}).get(split)
        return entry.get("n") if isinstance(entry, dict) else None

    def rows(self, split: str) -> Iterator[Row]:
        """The rows of a split in file order; none when the manifest has no such split.

        BadBundle naming file and line for a row that is no JSON object with an id. A text that is
        not a text counts as empty, with a warning.
        """
        entry = self.manifest.get("splits", {}).get(split)
        if entry is None:
            return
        path = os.path.join(self.directory, entry.get("path") or split + ".jsonl")
        odd = 0
        try:
            with open(path, "rb") as f:
                for number, line in enumerate(f, 1):
                    if not line.strip():
                        continue
                    row, fine = _read_row(line, "%s line %d" % (os.path.basename(path), number))
                    odd += not fine
                    yield row
        except OSError as error:
            raise BadBundle("cannot read %s: %s" % (path, error.strerror or error)) from error
        if odd:
            self.on_warning("%d of the %s items have no readable text; they count as empty" % (odd, split))

    def check(self, spec: Spec) -> None:
        """BadBundle when the bundle does not hold the spec's schemes with the spec's labels."""
        labels = self.manifest.get("labels", {})
        for schema in spec.schemas:
            if schema.name not in labels:
                known = ", ".join(sorted(labels)) or "none"
                raise BadBundle("the bundle has no scheme %r (it has %s)" % (schema.name, known))
            if list(labels[schema.name]) != list(schema.labels):
                raise BadBundle("the labels of %r in the bundle are not those of the spec" % schema.name)


def _read_manifest(path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as f:
            manifest = json.load(f)
    except OSError as error:
        raise BadBundle("cannot read %s: %s" % (path, error.strerror or error)) from error
    except ValueError as error:
        raise BadBundle("%s is not JSON: %s" % (path, error)) from error
    if not isinstance(manifest, dict) or manifest.get("v") != BUNDLE_VERSION:
        version = manifest.get("v") if isinstance(manifest, dict) else None
        raise BadBundle("bundle version %r is not known here (this worker knows %d)" % (version, BUNDLE_VERSION))
    for key in ("labels", "splits"):
        if not isinstance(manifest.get(key), dict):
            raise BadBundle("%s: %s is missing" % (path, key))
    return manifest


def _read_row(line: bytes, where: str) -> Tuple[Row, bool]:
    try:
        raw = json.loads(line.decode("utf-8"))
    except ValueError as error:
        raise BadBundle("%s is not JSON: %s" % (where, error)) from error
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), str):
        raise BadBundle("%s has no id" % where)
    text = raw.get("text")
    labels = raw.get("labels")
    labels = labels if isinstance(labels, dict) else {}
    if isinstance(text, str):
        return Row(raw["id"], text, labels), True
    return Row(raw["id"], "", labels), False


class Example(NamedTuple):
    """A labelled item for one scheme: ``target`` is a label's index, or a sorted tuple of them for multilabel."""

    id: str
    text: str
    target: Any


def target_of(schema: SchemaSpec, value: Any, where: str) -> Any:
    """A row's label as index or indices, None when it has none. BadBundle for a label that the scheme lacks."""
    if value is None or value == []:
        return None
    index = {label: n for n, label in enumerate(schema.labels)}
    if schema.kind == "multilabel":
        values = value if isinstance(value, list) else [value]
        for label in values:
            if not isinstance(label, str) or label not in index:
                raise BadBundle("%s: %r is not a label of %r" % (where, label, schema.name))
        return tuple(sorted({index[label] for label in values}))
    if not isinstance(value, str) or value not in index:
        raise BadBundle("%s: %r is not a label of %r" % (where, value, schema.name))
    return index[value]


def examples(rows: Iterable[Row], schema: SchemaSpec, split: str) -> List[Example]:
    """The rows that have a label in the scheme, as Examples."""
    found = []
    for row in rows:
        target = target_of(schema, row.labels.get(schema.name), "%s item %r" % (split, row.id))
        if target is not None:
            found.append(Example(row.id, row.text, target))
    return found
