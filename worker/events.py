"""The event stream: one JSON object a line, each by a single write in append mode.

The descriptor is a duplicate of the standard output that the worker was started with;
``take_stdout`` then points descriptor 1 at 2, so that whatever a library prints lands in
stderr.log and never between two events.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import stat
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from . import protocol

PROGRESS_INTERVAL_S = 0.26      # a little over a quarter: never five in one second
FSYNC_INTERVAL_S = 0.25
MAX_MESSAGE = 8 * 1024          # characters of a log or error message


def take_stdout() -> int:
    """Duplicates descriptor 1 for the events, points 1 at 2, and returns the duplicate."""
    fd = os.dup(1)
    sys.stdout.flush()
    os.dup2(2, 1)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


def finite(value: Any, found: Optional[List[str]] = None) -> Any:
    """The value with every NaN and infinity replaced by None; their words go into the list ``found``."""
    if isinstance(value, float) and not math.isfinite(value):
        if found is not None:
            found.append("nan" if math.isnan(value) else ("inf" if value > 0 else "-inf"))
        return None
    if isinstance(value, dict):
        return {str(k): finite(v, found) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v, found) for v in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if hasattr(value, "item"):          # a number of numpy or torch
        return finite(value.item(), found)
    return str(value)


def clip(text: Any, limit: int = MAX_MESSAGE) -> str:
    """The text, at most ``limit`` characters of it."""
    text = str(text)
    return text if len(text) <= limit else text[: limit - 14] + " [... cut off]"


class EventWriter:
    """Writes events to a descriptor. Thread-safe; no method raises when the disk is full or the reader gone."""

    def __init__(self, fd: int, attempt: int = 1) -> None:
        self._fd = fd
        self.attempt = attempt
        self._spare: Optional[str] = None              # a file whose removal makes room for a last event
        self._lock = threading.Lock()
        self._torn = False
        self._synced = 0.0
        self._progress_at = 0.0
        self._pending: Optional[Dict[str, Any]] = None
        self._ended = False
        self.failed: Optional[OSError] = None              # the last OSError of a write, or None

    def emit(self, kind: str, **fields: Any) -> bool:
        """Writes one event and says whether it was written whole.

        Non-finite numbers become null, with "nonfinite" naming the first of them.
        """
        with self._lock:
            if self._ended:
                return False
            if kind in ("status", "result", "error"):
                self._pending = None    # progress of a step that is over says nothing any more
            self._ended = kind in ("result", "error")   # the last event is the last, whatever a thread still has to say
            return self._write(kind, fields)

    def progress(self, phase: str, current: float, total: Optional[float] = None,
                 eta_s: Optional[float] = None) -> None:
        """A progress event, at most four a second: of those that come faster the latest is kept for ``tick``."""
        fields = {"phase": phase, "current": current, "total": total, "eta_s": eta_s}
        with self._lock:
            if self._ended:
                return
            now = time.monotonic()
            if now - self._progress_at < PROGRESS_INTERVAL_S:
                self._pending = fields
                return
            self._pending = None
            self._progress_at = now
            self._write("progress", fields)

    def tick(self) -> None:
        """Writes a held-back progress event once its time has come; called now and then."""
        with self._lock:
            now = time.monotonic()
            if self._pending is not None and now - self._progress_at >= PROGRESS_INTERVAL_S:
                fields, self._pending = self._pending, None
                self._progress_at = now
                self._write("progress", fields)

    def log(self, level: str, msg: str) -> None:
        """A line for the run's log; level is "debug", "info", "warning" or "error"."""
        self.emit("log", level=level, msg=clip(msg))

    def _write(self, kind: str, fields: Dict[str, Any]) -> bool:
        event = {"v": protocol.EVENT_VERSION, "event": kind, "t": round(time.time(), 3), "attempt": self.attempt}
        found: List[str] = []
        event.update(finite(fields, found))
        if found:
            event["nonfinite"] = found[0]
        line = encode(event)
        if len(line) > protocol.MAX_EVENT_BYTES:
            line = encode(shorten(event))
        written = self._put(line)
        now = time.monotonic()
        if kind in ("status", "result", "error") or now - self._synced >= FSYNC_INTERVAL_S:
            self._synced = now
            with contextlib.suppress(OSError):      # a pipe or a terminal
                os.fsync(self._fd)
        return written

    def _put(self, line: bytes) -> bool:
        data = (b"\n" + line) if self._torn else line
        for last in (False, True):
            try:
                done = os.write(self._fd, data)
                self._torn = done < len(data)
                if not self._torn:
                    return True
                data = b"\n" + line
            except OSError as error:
                self.failed = error
            if last or not self.make_room():
                return False
        return False

    def keep_spare(self, path: str, size: int = 32 * 1024) -> None:
        """Sets a few KiB aside in the file at path: room for the last event and the exit code on a full disk."""
        try:
            with open(path, "wb") as f:
                f.write(b"0" * size)
            self._spare = path
        except OSError:
            self._spare = None

    def make_room(self) -> bool:
        """Gives the spare file's room back; whether there was one."""
        if not self._spare:
            return False
        spare, self._spare = self._spare, None
        try:
            os.unlink(spare)
        except OSError:
            return False
        return True


def encode(event: Dict[str, Any]) -> bytes:
    """One line of ASCII: no character of an event can be cut in two, whatever the reader's chunks are."""
    return json.dumps(event, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def shorten(event: Dict[str, Any]) -> Dict[str, Any]:
    """An event that fits: the smallest cells of its confusion matrices go first, then labels' details."""
    event = json.loads(json.dumps(event))
    event["cut"] = True
    parts = [
        m for by_split in (event.get("metrics") or {}).values() if isinstance(by_split, dict)
        for m in by_split.values() if isinstance(m, dict)
    ]
    for share in (0.5, 0.25, 0.1, 0.0):
        for part in parts:
            cells = (part.get("confusion") or {}).get("cells") or []
            kept = sorted(cells, key=lambda c: -c[2])[: int(len(cells) * share)]
            if "confusion" in part:
                part["confusion"] = {"cells": sorted(kept), "cut": True}
        if len(encode(event)) <= protocol.MAX_EVENT_BYTES:
            return event
    for key in ("confusion", "per_label"):
        for part in parts:
            part.pop(key, None)
        if len(encode(event)) <= protocol.MAX_EVENT_BYTES:
            return event
    event.pop("label_order", None)
    if len(encode(event)) <= protocol.MAX_EVENT_BYTES:
        return event
    short_keys = ("v", "event", "t", "attempt", "cut", "status", "state", "code", "exit_code", "n_predictions",
                  "predictions_sha256", "kept")
    short = {k: event[k] for k in short_keys if k in event}
    for key in ("message", "msg", "install_hint", "step", "reason"):
        if isinstance(event.get(key), str):
            short[key] = clip(event[key], 4096)
    return short
