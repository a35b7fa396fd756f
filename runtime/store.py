"""The ledger: one SQLite file (WAL) that every process of the project reads and writes.

The supervisor moves runs; front doors insert rows, read, and leave wishes. What is asked of a run
often has a column; the rest of its record is one JSON object, ``facts``, changed by merging keys.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..worker.protocol import CANCELLING, QUEUED
from . import life
from .database import Database
from .rows import Change, Release, Run, run_of


class Store(Database):
    """The ledger of one project: its runs, releases and tokens."""

    # --- runs --------------------------------------------------------------------------------

    def insert(
        self, run_id: str, *, trainer: str, schemas: tuple[str, ...], params: Mapping[str, Any], backend: str,
        config: str, trigger: str, started_by: str, backend_type: str = "local",
        facts: Mapping[str, Any] | None = None,
    ) -> Run:
        """Puts a run at the end of the queue."""
        facts = {**(facts or {}), "backend_type": backend_type, "timings": {QUEUED: time.time()}}
        with self._write() as db:
            db.execute(
                "INSERT INTO runs (run_id, trainer, schemas, params, backend, config, trigger, started_by, created,"
                " state, facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (run_id, trainer, json.dumps(schemas), json.dumps(params), backend, config, trigger, started_by,
                 time.time(), QUEUED, json.dumps(facts)),
            )
        run = self.get(run_id)
        assert run is not None
        return run

    def get(self, run_id: str) -> Run | None:
        row = self._db().execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return None if row is None else run_of(row)

    def runs(self, limit: int = -1) -> list[Run]:
        """The newest first."""
        rows = self._db().execute("SELECT * FROM runs ORDER BY place DESC LIMIT ?", (limit,))
        return [run_of(row) for row in rows]

    def open_runs(self) -> list[Run]:
        """What the supervisor still has to do with, in the order of the queue."""
        rows = self._db().execute("SELECT * FROM runs WHERE settled = 0 ORDER BY place")
        return [run_of(row) for row in rows]

    def advance(
        self, run_id: str, state: str, *, attempt: int | None = None, unless_wish: str | None = None, **columns: Any
    ) -> bool:
        """Moves a run forward; False when it stands there already or further (nothing is changed).

        ``columns``: step, reason, hint, set together with the move. With ``unless_wish`` the run stays
        where it is when somebody has left that wish, decided in the same transaction.
        """
        with self._change(run_id) as change:
            if change is None or (unless_wish and change.wish == unless_wish) or not change.move(state, attempt):
                return False
            change.columns.update(columns)
        return True

    def record(
        self, run_id: str, *, moves: Iterable[tuple[int, str, str]] = (), step: str | None = None,
        facts: Mapping[str, Any] | None = None, warnings: Iterable[str] = (),
    ) -> None:
        """Writes news down in one transaction; facts are merged, one level deep where both are mappings.

        ``moves`` are (attempt, state, step line) as the far side told them, each of the latter two possibly
        empty. A step line of a state that the run has left already is late news and not shown.
        """
        with self._change(run_id) as change:
            if change is None:
                return
            for attempt, state, line in moves:
                current = not state or change.move(state, attempt) or change.position == (attempt, state)
                if line and current:
                    change.columns["step"] = line
            if step is not None:
                change.columns["step"] = step
            for key, value in (facts or {}).items():
                old = change.facts.get(key)
                change.facts[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
            for warning in warnings:
                told = change.facts.setdefault("warnings", [])
                if warning not in told and len(told) < 100:
                    told.append(warning)

    def note(self, run_id: str, *, step: str | None = None, **facts: Any) -> None:
        """``record`` for a few facts."""
        self.record(run_id, step=step, facts=facts)

    @contextmanager
    def _change(self, run_id: str) -> Iterator[Change | None]:
        with self._write() as db:
            row = db.execute("SELECT attempt, state, wish, facts FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            change = None if row is None else Change(row)
            yield change
            if change is not None and (values := change.values()):
                _update(db, run_id, values)

    def settle(self, run_id: str) -> None:
        """Everything that follows a run's end is done."""
        with self._write() as db:
            _update(db, run_id, {"settled": 1})

    def heard(self, run_id: str) -> None:
        """An agent said something, to a process that is not the supervisor."""
        with self._write() as db:
            db.execute("UPDATE runs SET words = words + 1 WHERE run_id = ?", (run_id,))

    def wish(self, run_id: str, wish: str) -> str:
        """Leaves the wish ``cancel`` or ``keep``; answers ``left``, ``over`` or ``unknown``.

        A cancel outranks a keep, and a second cancel changes nothing.
        """
        with self._write() as db:
            row = db.execute("SELECT state, wish FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if row is None:
                return "unknown"
            if life.is_over(row["state"]):
                return "over"
            if row["wish"] != "cancel" and row["state"] != CANCELLING:
                _update(db, run_id, {"wish": wish})
            return "left"

    def delete(self, run_id: str) -> None:
        with self._write() as db:
            db.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
            db.execute("DELETE FROM tokens WHERE kind = 'run' AND name = ?", (run_id,))

    # --- releases ----------------------------------------------------------------------------

    def owe(self, run_id: str, kind: str, target: Mapping[str, Any]) -> None:
        """Writes down that something of this run must be let go of, before it is taken hold of."""
        with self._write() as db:
            db.execute(
                "INSERT INTO releases (run_id, kind, target, created) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (run_id) DO UPDATE SET target = excluded.target",
                (run_id, kind, json.dumps(target), time.time()),
            )

    def owed(self, run_id: str) -> Mapping[str, Any]:
        """The target that was written down last, {} when nothing is owed."""
        row = self._db().execute("SELECT target FROM releases WHERE run_id = ?", (run_id,)).fetchone()
        return {} if row is None else json.loads(row["target"])

    def releases(self) -> list[Release]:
        rows = self._db().execute("SELECT * FROM releases ORDER BY created")
        return [
            Release(r["run_id"], r["kind"], json.loads(r["target"]), r["created"], r["tries"], r["last_error"])
            for r in rows
        ]

    def release_failed(self, run_id: str, error: str) -> None:
        with self._write() as db:
            db.execute("UPDATE releases SET tries = tries + 1, last_error = ? WHERE run_id = ?", (error[:2000], run_id))

    def released(self, run_id: str) -> None:
        with self._write() as db:
            db.execute("DELETE FROM releases WHERE run_id = ?", (run_id,))

    # --- tokens ------------------------------------------------------------------------------

    def put_token(self, kind: str, name: str, sha256: str) -> None:
        """A new token for a name ends the old one at once."""
        with self._write() as db:
            db.execute(
                "INSERT INTO tokens (kind, name, sha256, created) VALUES (?, ?, ?, ?) ON CONFLICT (kind, name)"
                " DO UPDATE SET sha256 = excluded.sha256, created = excluded.created, last_seen = NULL",
                (kind, name, sha256, time.time()),
            )

    def tokens(self) -> list[sqlite3.Row]:
        return self._db().execute("SELECT kind, name, sha256, created, last_seen FROM tokens").fetchall()

    def token(self, sha256: str) -> sqlite3.Row | None:
        """The token with this digest; the column's index finds it."""
        found: sqlite3.Row | None = self._db().execute(
            "SELECT kind, name, sha256 FROM tokens WHERE sha256 = ?", (sha256,)).fetchone()
        return found

    def saw_tokens(self, kind: str, moments: Mapping[str, float]) -> None:
        """When each of these names was seen last, all in one transaction: a sync of the disk is what costs."""
        with self._write() as db:
            db.executemany("UPDATE tokens SET last_seen = ? WHERE kind = ? AND name = ?",
                           [(moment, kind, name) for name, moment in moments.items()])

    def drop_token(self, kind: str, name: str) -> None:
        with self._write() as db:
            db.execute("DELETE FROM tokens WHERE kind = ? AND name = ?", (kind, name))


def _update(db: sqlite3.Connection, run_id: str, values: Mapping[str, Any]) -> None:
    columns = ", ".join(f"{column} = ?" for column in values)
    db.execute(f"UPDATE runs SET {columns} WHERE run_id = ?", (*values.values(), run_id))  # noqa: S608 our own names
