"""Which of two stored answers an annotator settled on.

Servers before Potato's fix of single-choice answers kept one pair per option ever clicked, in the order of
the first click, so the state alone cannot tell. The history can.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .states import is_set

#: (item, scheme) -> the answers stored.
Doubts = Mapping[tuple[str, str], frozenset[str]]


def from_history(path: Path, doubts: Doubts) -> dict[tuple[str, str], str]:
    """Last word of annotation_history.jsonl on each doubt, where it has one.

    Lines that cannot be read (the last may be under way) are passed over; so is a file that is not there.
    """
    last: dict[tuple[str, str], str] = {}
    try:
        with path.open("rb") as file:
            for line in file:
                _follow(line, doubts, last)
    except FileNotFoundError:
        return {}
    return last


def _follow(line: bytes, doubts: Doubts, last: dict[tuple[str, str], str]) -> None:
    try:
        action = json.loads(line)
        key = (str(action["instance_id"]), action["schema_name"])
        name, kind = action["label_name"], action["action_type"]
        if key not in doubts or name not in doubts[key]:
            return
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    if kind in ("add_label", "update_label") and is_set(name, action.get("new_value", name)):
        last[key] = name
    elif last.get(key) == name:
        del last[key]


def from_changes(behaviour: Iterable[tuple[str, Any]], doubts: Doubts) -> dict[tuple[str, str], str]:
    """The same from the changes that the state itself keeps for each item (latest time wins)."""
    items = {item for item, _ in doubts}
    last: dict[tuple[str, str], tuple[float, str]] = {}
    for item, data in behaviour:
        if item not in items or not isinstance(data, dict):
            continue
        changes = data.get("annotation_changes")
        for change in changes if isinstance(changes, list) else ():
            if not isinstance(change, dict) or change.get("action") not in ("select", "update"):
                continue
            schema, name, at = (change.get(k) for k in ("schema_name", "label_name", "timestamp"))
            if not (isinstance(at, (int, float)) and isinstance(schema, str) and isinstance(name, str)):
                continue
            key = (item, schema)
            if key not in doubts:
                continue
            if name in doubts[key] and at >= last.get(key, (float("-inf"), ""))[0]:
                last[key] = (at, name)
    return {key: name for key, (_, name) in last.items()}
