"""Prelabels in the running server: what ``training/prelabels.jsonl`` says, the live items say as well."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

#: Rows and items that are looked at in one go before other threads get their turn.
_BREATH = 500

Key = tuple[str, str]


class Prelabels:
    """The prelabels of one process. ``path`` is written by the supervisor, whole, by rename."""

    def __init__(self, path: Path, field: str):
        self._path, self._field = path, field
        self._lock = threading.Lock()
        self._shown: dict[Key, Any] = {}
        #: What the data files themselves proposed for an item, to be shown again when a prelabel goes.
        self._before: dict[Key, Any] = {}
        self._missing = 0
        self._seen: Any = None

    def of(self, item: str, schemas: Collection[str]) -> dict[str, Any]:
        """The prelabels that an item has now, as labels or lists of labels."""
        found = ((schema, self._shown.get((item, schema))) for schema in schemas)
        return {schema: labels_of(payload) for schema, payload in found if payload is not None}

    def follow(self, items: Any, schemas: Collection[str], breathe: Callable[[], None] = lambda: None) -> int:
        """Brings the live items to what the file says now; how many prelabels there are.

        Cheap when nothing has changed. Prelabels of items that are not there (yet) are tried again when there
        are more items.
        """
        with self._lock:
            stamp = (_stamp(self._path), frozenset(schemas), items.item_count() if self._missing else None)
            if stamp == self._seen:
                return len(self._shown)
            wanted: dict[Key, Any] = {}
            for n, row in enumerate(_rows(self._path)):
                if n % _BREATH == 0:
                    breathe()
                if row["schema"] in schemas:
                    wanted[row["instance_id"], row["schema"]] = payload_of(row)
            for n, key in enumerate([key for key in self._shown if key not in wanted]):
                if n % _BREATH == 0:
                    breathe()
                self._clear(items, key)
            self._missing = 0
            for n, (key, payload) in enumerate(wanted.items()):
                if n % _BREATH == 0:
                    breathe()
                if self._shown.get(key) != payload:
                    self._show(items, key, payload)
            self._seen = (*stamp[:2], items.item_count() if self._missing else None)
            return len(self._shown)

    def _show(self, items: Any, key: Key, payload: Any) -> None:
        item = items.find_item(key[0]) if items.has_item(key[0]) else None
        if item is None:
            self._missing += 1
            return
        if key not in self._shown:
            there = item.get_data().get(self._field)
            if isinstance(there, dict) and key[1] in there:
                self._before[key] = there[key[1]]
        items.set_prediction(key[0], key[1], payload, field=self._field)
        self._shown[key] = payload

    def _clear(self, items: Any, key: Key) -> None:
        del self._shown[key]
        if items.has_item(key[0]):
            if key in self._before:
                items.set_prediction(key[0], key[1], self._before.pop(key), field=self._field)
            else:
                items.clear_prediction(key[0], key[1], field=self._field)


def payload_of(row: dict[str, Any]) -> Any:
    """A row's labels with how sure the model is of them, in the form that Potato's page takes."""
    given, sure = row["payload"], row.get("confidence")
    each = [
        {"label": label, "confidence": round(sure, 4)} if isinstance(sure, (int, float)) else {"label": label}
        for label in (given if isinstance(given, list) else [given])
    ]
    return each if isinstance(given, list) else each[0]


def labels_of(payload: Any) -> Any:
    """What ``payload_of`` was made of."""
    return [one["label"] for one in payload] if isinstance(payload, list) else payload["label"]


def pause() -> None:
    """Lets requests go first."""
    time.sleep(0.001)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and {"instance_id", "schema", "payload"} <= row.keys():
                    yield row
    except FileNotFoundError:
        return


def _stamp(path: Path) -> Any:
    try:
        about = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino
