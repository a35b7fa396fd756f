"""What was told from outside, brought into the shapes that readers of a record count on.

A page, a table and a card are made of these values long after they came. What is of another shape is left out
here, once, so that no reader has to look again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

_TEXT = 2000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_LARGEST = sys.float_info.max
#: A reader's patience, far above any machine or study.
_MOST_GPUS, _MOST_NAMES = 64, 5000

Shape = Callable[[Any], Any]


def text(value: Any, limit: int = _TEXT) -> str:
    """Any value as one short line of text."""
    return _CONTROL.sub(" ", value if isinstance(value, str) else str(value)).strip()[:limit]


def number(value: Any) -> float | None:
    """A finite number, or None. An integer may be larger than any of them."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -_LARGEST <= value <= _LARGEST else None


def machine(event: Mapping[str, Any]) -> dict[str, Any]:
    """What a status event tells about where it was said."""
    return _known(event, _MACHINE)


def calls(value: Any) -> dict[str, Any] | None:
    """How often the scheduler was called, by verb."""
    return _table(_scalar)(value)


def result(event: Mapping[str, Any]) -> dict[str, Any]:
    """What a result event tells. Cells of a confusion matrix name two labels that there are."""
    found = _known(event, _RESULT)
    for schema, splits in (found.get("metrics") or {}).items():
        labels = (found.get("label_order") or {}).get(schema)
        for split in splits.values():
            if labels is not None and "confusion" in split:
                cells = split["confusion"]["cells"]
                split["confusion"]["cells"] = [cell for cell in cells if max(cell[:2]) < len(labels)]
    return found


def _known(event: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """The fields that are known and have their shape. A null stays: it takes back what was told before."""
    found = {name: (event[name], shape(event[name])) for name, shape in shapes.items() if name in event}
    return {name: shaped for name, (told, shaped) in found.items() if told is None or shaped is not None}


def _scalar(value: Any) -> str | float | bool | None:
    if isinstance(value, bool):
        return value
    return text(value) if isinstance(value, str) else number(value)


def _word(value: Any) -> str | None:
    return text(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def _table(shape: Shape) -> Shape:
    """A mapping whose values have the shape."""

    def read(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        shaped = ((text(key), shape(one)) for key, one in list(value.items())[:_MOST_NAMES])
        return {key: one for key, one in shaped if one is not None}

    return read


def _row(shape: Shape, most: int) -> Shape:
    """A list whose members have the shape."""

    def read(value: Any) -> list[Any] | None:
        if not isinstance(value, list):
            return None
        return [one for one in map(shape, value[:most]) if one is not None]

    return read


def _cell(value: Any) -> list[int] | None:
    whole = isinstance(value, list) and len(value) == 3 and all(
        isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 1 << 53 for x in value)
    return value if whole else None


def _split(value: Any) -> dict[str, Any] | None:
    """The scores of a split: numbers, a note, and two tables."""
    if not isinstance(value, dict):
        return None
    found: dict[str, Any] = {text(key): number(one) for key, one in value.items() if number(one) is not None}
    if isinstance(value.get("note"), str):
        found["note"] = text(value["note"])
    if isinstance(value.get("per_label"), dict):
        found["per_label"] = _table(_table(number))(value["per_label"])
    confusion = value.get("confusion")
    if isinstance(confusion, dict) and isinstance(confusion.get("cells"), list):
        found["confusion"] = {"cells": _row(_cell, 1_000_000)(confusion["cells"])}
    return found


_MACHINE: Mapping[str, Shape] = {
    "host": _word, "python": _word, "device": _word, "node": _word, "scheduler_job": _word, "scheduler_cluster": _word,
    "threads": _scalar, "pid": _scalar, "software": _table(_word), "gpu": _row(_table(_scalar), _MOST_GPUS),
    "scheduler_calls": calls,
}
_RESULT: Mapping[str, Shape] = {
    "status": _word, "model_version": _table(_word), "metrics": _table(_table(_split)),
    "label_order": _table(_row(_word, _MOST_NAMES)), "n_predictions": number, "predictions_sha256": _word,
    "kept": lambda value: value if isinstance(value, bool) else None, "why": _word,
}
