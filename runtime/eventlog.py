"""An append-only file of events, numbered by line, that several processes may write.

``seq`` is the number of an event's line, from 0. A batch that was seen already adds nothing, a gap
is refused with the number wanted, and a line that a kill left half-written is cut off before the
next one is added: what a sender was never told to be there, it sends again.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: A worker that tells a hundred metrics a second for two days stays below. From here on only what ends a run is kept,
#: and from twice that nothing: nobody's events fill the disk.
MOST_BYTES = 2 << 30
_ENDS = ("result", "error")
_TOO_MANY: dict[str, Any] = {
    "v": 1, "event": "log", "level": "warning", "msg": "too many events: later ones are not kept",
}


class Gap(Exception):
    """The batch begins later than what is wanted next."""

    def __init__(self, wanted: int):
        super().__init__(wanted)
        self.wanted = wanted


class EventLog:
    """One stream of one run. Instances are cheap; use one per process and file for speed."""

    def __init__(self, path: Path):
        self._path = path
        self._guard = threading.Lock()
        self._full = False
        self._counted = (0, 0)  # (bytes, whole lines in them): spares reading the file again

    def append(self, seq: int, events: Sequence[dict[str, Any]]) -> tuple[int, Sequence[dict[str, Any]]]:
        """Adds the events from ``seq`` on; gives (next seq wanted, the events that were new).

        Raises Gap, and ValueError for a number that JSON does not have (NaN, infinities).
        """
        with self._guard, os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size, count = self._count(file)
            if seq > count:
                raise Gap(count)
            fresh = events[count - seq:]
            if fresh:
                data = _lines(fresh)
                if size + len(data) > MOST_BYTES:
                    fresh = self._kept(size, fresh)
                    data = _lines(fresh)
                file.seek(size)
                file.write(data)
                file.flush()
                size, count = size + len(data), count + len(fresh)
            self._counted = (size, count)
            return count, fresh

    def _kept(self, size: int, events: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """The events as far as there is room; what is left out leaves an empty one, so that numbers stay."""
        kept: list[dict[str, Any]] = []
        for event in events:
            length = len(_lines([event]))
            if size + length > (2 * MOST_BYTES if event.get("event") in _ENDS else MOST_BYTES):
                event = {} if self._full else _TOO_MANY
                length, self._full = 3, True
            kept.append(event)
            size += length
        return kept

    def _count(self, file: Any) -> tuple[int, int]:
        """(bytes, lines) of the whole lines, with a torn last line cut off."""
        size, count = self._counted
        if os.fstat(file.fileno()).st_size < size:  # replaced or cut by somebody: count anew
            size = count = 0
        file.seek(size)
        position = size
        while chunk := file.read(1 << 20):
            if newlines := chunk.count(b"\n"):
                count += newlines
                size = position + chunk.rfind(b"\n") + 1
            position += len(chunk)
        if position > size:
            file.truncate(size)
        return size, count


def _lines(events: Sequence[dict[str, Any]]) -> bytes:
    text = "".join(
        json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n" for event in events
    )
    return text.encode("utf-8", "replace")


def read_events(path: Path, start: int) -> list[dict[str, Any]]:
    """The events of the lines from number ``start`` on."""
    with path.open("rb") as file:
        return [json.loads(line) for number, line in enumerate(file) if number >= start and line.endswith(b"\n")]


class Tail:
    """Reads a growing file of lines: each call of ``lines`` gives the whole lines that are new.

    The file need not be there yet. One that shrank (it was replaced) is read from its start again.
    """

    def __init__(self, path: Path):
        self._path = path
        self._offset = 0

    def lines(self) -> list[str]:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            if os.fstat(file.fileno()).st_size < self._offset:
                self._offset = 0
            file.seek(self._offset)
            data = file.read(4 << 20)
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        return [line.decode("utf-8", "replace") for line in data[:whole].splitlines()]

    def events(self) -> list[dict[str, Any]]:
        """The same as events; lines that are none are passed over."""
        found = []
        for line in self.lines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                found.append(event)
        return found
