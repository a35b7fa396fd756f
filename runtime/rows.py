"""Rows of the ledger as values, and a row that is being changed."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..worker.protocol import CANCELLING, ENDS, QUEUED
from . import life

#: A run may come to each of these without having been begun.
_NO_BEGINNING = ENDS | {QUEUED, CANCELLING}


class Run(NamedTuple):
    """One row of the ledger. Times are unix seconds; ``facts`` is the rest of the record."""

    place: int
    run_id: str
    trainer: str
    schemas: tuple[str, ...]
    params: Mapping[str, Any]
    backend: str
    config: str
    trigger: str
    started_by: str
    created: float
    attempt: int
    state: str
    ended: float | None
    step: str
    reason: str
    hint: str
    wish: str | None
    settled: bool
    #: Grows with every word of an agent that another process than the supervisor took in.
    words: int
    facts: Mapping[str, Any]

    @property
    def over(self) -> bool:
        return life.is_over(self.state)

    @property
    def started(self) -> float | None:
        """When it left the queue to be done. None for one that waits, or was cancelled while it did."""
        marks = self.facts.get("timings") or {}
        return min((moment for state, moment in marks.items() if state not in _NO_BEGINNING), default=None)


class Release(NamedTuple):
    """Something on a far side that must still be let go of. ``target`` is what finds it again."""

    run_id: str
    kind: str
    target: Mapping[str, Any]
    created: float
    tries: int
    last_error: str


def run_of(row: sqlite3.Row) -> Run:
    values = dict(row)
    values["schemas"] = tuple(json.loads(values["schemas"]))
    values["params"] = json.loads(values["params"])
    values["facts"] = json.loads(values["facts"])
    values["settled"] = bool(values["settled"])
    return Run(**values)


class Change:
    """A row being changed inside a transaction."""

    def __init__(self, row: sqlite3.Row):
        self.position = (row["attempt"], row["state"])
        self.wish = row["wish"]
        self.facts: dict[str, Any] = json.loads(row["facts"])
        self.columns: dict[str, Any] = {}
        self._before = row["facts"]

    def move(self, state: str, attempt: int | None) -> bool:
        target = (self.position[0] if attempt is None else attempt, state)
        if not life.may_move(self.position, target):
            return False
        self.position = (max(target[0], self.position[0]), state)
        now = time.time()
        self.facts.setdefault("timings", {})[state] = now
        self.columns.update(attempt=self.position[0], state=state)
        if life.is_over(state):
            self.columns["ended"] = now
        return True

    def values(self) -> dict[str, Any]:
        after = json.dumps(self.facts)
        return self.columns if after == self._before else {**self.columns, "facts": after}
