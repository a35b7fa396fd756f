"""predictions.jsonl: written beside its name, fsynced, renamed, with the digest of its bytes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, Sequence

from . import metrics

if TYPE_CHECKING:
    from .spec import SchemaSpec

MOST_SCORES = 20


class PredictionsFile:
    """Collects prediction rows; ``finish`` makes the file appear whole. Use as a context: an error leaves no file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        self._digest = hashlib.sha256()
        self._file: Any = None

    def __enter__(self) -> PredictionsFile:
        self._file = open(self.path + ".tmp", "wb")
        return self

    def __exit__(self, *error: Any) -> None:
        if not self._file.closed:
            with contextlib.suppress(OSError):      # a full disk refuses the rest of the buffer once more
                self._file.close()
            os.unlink(self.path + ".tmp")

    def add(self, schema: SchemaSpec, split: str, row_id: str, scores: Sequence[float]) -> None:
        """One item's prediction from its scores in label order."""
        chosen, confidence = metrics.choose(schema.kind, scores)
        likely = sorted(range(len(scores)), key=lambda n: (-scores[n], n))[:MOST_SCORES]
        row = {
            "instance_id": row_id,
            "schema_name": schema.name,
            "payload": [schema.labels[n] for n in chosen] if schema.kind == "multilabel" else schema.labels[chosen],
            "confidence": round(confidence, 6),
            "split": split,
            "scores": {schema.labels[n]: round(float(scores[n]), 6) for n in likely},
        }
        try:
            line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
        except UnicodeEncodeError:      # half a surrogate pair in an id or a label
            line = json.dumps(row, allow_nan=False).encode("ascii") + b"\n"
        self._digest.update(line)
        self._file.write(line)
        self.count += 1

    def finish(self) -> str:
        """Makes the file appear under its name; -> the SHA-256 of its bytes, in hex."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.path + ".tmp", self.path)
        return self._digest.hexdigest()
