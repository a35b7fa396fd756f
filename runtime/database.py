"""The ledger's file: its tables, a connection for each thread, and transactions.

SQLite with a write-ahead log; every process of the project has it open.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..schema.errors import UserError

#: How long anybody waits for another who writes.
_BUSY_S = 30.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    place       INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id      TEXT NOT NULL UNIQUE,
    trainer     TEXT NOT NULL,
    schemas     TEXT NOT NULL,
    params      TEXT NOT NULL,
    backend     TEXT NOT NULL,
    config      TEXT NOT NULL,
    trigger     TEXT NOT NULL,
    started_by  TEXT NOT NULL,
    created     REAL NOT NULL,
    attempt     INTEGER NOT NULL DEFAULT 1,
    state       TEXT NOT NULL,
    ended       REAL,
    step        TEXT NOT NULL DEFAULT '',
    reason      TEXT NOT NULL DEFAULT '',
    hint        TEXT NOT NULL DEFAULT '',
    wish        TEXT,
    settled     INTEGER NOT NULL DEFAULT 0,
    words       INTEGER NOT NULL DEFAULT 0,
    facts       TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS runs_open ON runs (settled, state);
CREATE TABLE IF NOT EXISTS releases (
    run_id      TEXT PRIMARY KEY,
    kind        TEXT NOT NULL,
    target      TEXT NOT NULL,
    created     REAL NOT NULL,
    tries       INTEGER NOT NULL DEFAULT 0,
    last_error  TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS tokens (
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    sha256      TEXT NOT NULL UNIQUE,
    created     REAL NOT NULL,
    last_seen   REAL,
    PRIMARY KEY (kind, name)
);
"""
#: Raised with each change of the tables that an older program could not read.
_VERSION = 1


class StoreTooNew(UserError):
    """The ledger was written by a newer program."""


class Database:
    """The file of one project. One instance may be used from many threads.

    Raises UserError when its folder is gone, StoreTooNew, and sqlite3.Error.
    """

    def __init__(self, path: Path):
        self._path = path
        self._local = threading.local()
        self._db()

    def _db(self) -> sqlite3.Connection:
        db = getattr(self._local, "db", None)
        if db is not None and _which(self._path) != self._local.which:
            # Somebody removed the folder. An open connection would go on in a file that nobody else sees.
            self.close()
            db = None
        return db or self._open()

    def _open(self) -> sqlite3.Connection:
        folder = self._path.parent
        if not folder.is_dir():
            raise UserError(
                f"{folder} is gone", "runs and their models were kept there: put it back, or start a run to begin anew"
            )
        # Autocommit mode: every transaction below begins and ends where one can see it.
        db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        db.row_factory = sqlite3.Row
        try:
            _use_wal(db)
        except sqlite3.OperationalError:
            db.close()
            if os.access(folder, os.W_OK):
                raise
            raise UserError(f"{self._path} cannot be opened: {folder} is not writable, which even reading it takes",
                            "copy the project to a place of your own to look at its runs there") from None
        db.execute("PRAGMA synchronous = FULL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            db.close()
            raise StoreTooNew(f"{self._path} was written by a newer potato-training (format {version})")
        self._local.db, self._local.which = db, _which(self._path)
        if version < _VERSION:  # else nothing is written by opening: a full disk can be looked at
            self._make()
        return db

    def _make(self) -> None:
        with self._write() as db:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {_VERSION}")
        for suffix in ("", "-wal", "-shm"):
            beside = self._path.with_name(self._path.name + suffix)
            if beside.exists():
                beside.chmod(0o600)

    def close(self) -> None:
        """Closes this thread's connection; the next call opens another.

        A process that forks must have none open: SQLite in the child believes that it holds its parent's locks,
        and the log was seen to be deleted under it.
        """
        db = getattr(self._local, "db", None)
        if db is not None:
            self._local.db = None
            db.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """For what must be decided and written in one piece; nobody else writes meanwhile."""
        with self._write() as db:
            yield db

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        db = self._db()
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


def _which(path: Path) -> object:
    """Which file is there now; None when there is none."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _use_wal(db: sqlite3.Connection) -> None:
    """Turns the write-ahead log on. SQLite's own time-out does not hold for that: of two who do it to a fresh file
    at once, one is refused at once (seen with 3.40)."""
    give_up = time.monotonic() + _BUSY_S
    while True:
        try:
            if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
        time.sleep(0.01)
