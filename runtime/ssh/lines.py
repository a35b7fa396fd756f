"""The connections that this supervisor keeps, by run: its release uses the one that its drive has made."""

from __future__ import annotations

import threading

from .line import Line

_kept: dict[str, Line] = {}
_lock = threading.Lock()


def keep(run_id: str, line: Line) -> None:
    """For whoever needs the run's host next."""
    with _lock:
        _kept[run_id] = line


def take(run_id: str) -> Line | None:
    """The run's connection, now the caller's to close; None when there is none."""
    with _lock:
        return _kept.pop(run_id, None)
