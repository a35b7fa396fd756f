"""Quick answers about a run's events.jsonl however long it is: it is read once, and then only what is new."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

#: Where every so many-th line begins is remembered.
_STRIDE = 256
_BLOCK = 1 << 20
_MOST_RUNS = 32
#: A curve with more points than a screen has pixels tells nothing more.
MOST_POINTS = 800
_LARGEST = 1e100


class Point(NamedTuple):
    t: float
    value: float
    step: float | None


class Curve:
    """The values of one metric, thinned out as they come: every n-th stays, n doubling, and the last always."""

    def __init__(self) -> None:
        self._kept: list[Point] = []
        self._every, self._seen = 1, 0
        self._last: Point | None = None

    def add(self, point: Point) -> None:
        if self._seen % self._every == 0:
            self._kept.append(point)
            if len(self._kept) > MOST_POINTS:
                self._kept, self._every = self._kept[::2], self._every * 2
        self._seen += 1
        self._last = point

    @property
    def points(self) -> list[Point]:
        last = [self._last] if self._last is not None and self._last is not self._kept[-1] else []
        return self._kept + last


class EventIndex:
    """One events.jsonl. May be used from many threads."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._inode, self._offset, self.count = 0, 0, 0
        self._starts: list[int] = [0]
        #: (name, split) -> Curve, of metrics that were told with a step: those on the way.
        self._curves: dict[tuple[str, str], Curve] = {}

    def events(self, after: int, most: int) -> tuple[list[dict[str, Any]], int]:
        """(the events from line ``after`` on, at most so many; the number of the line that follows them)."""
        with self._lock:
            self._read_on()
            if after >= self.count:
                return [], self.count
            found: list[dict[str, Any]] = []
            with self._path.open("rb") as file:
                file.seek(self._starts[after // _STRIDE])
                for _ in range(after % _STRIDE):
                    file.readline()
                until = min(after + most, self.count)
                for _ in range(after, until):
                    found.append(_event(file.readline()))
            return found, until

    def curves(self) -> dict[tuple[str, str], list[Point]]:
        with self._lock:
            self._read_on()
            return {key: curve.points for key, curve in self._curves.items()}

    def _read_on(self) -> None:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            about = os.fstat(file.fileno())
            if about.st_ino != self._inode or about.st_size < self._offset:  # another file than the one read so far
                self._forget()
                self._inode = about.st_ino
            file.seek(self._offset)
            while lines := file.readlines(_BLOCK):
                for line in lines:
                    if not line.endswith(b"\n"):
                        return
                    if b'"metric"' in line:
                        self._metric(line)
                    self._offset += len(line)
                    self.count += 1
                    if self.count % _STRIDE == 0:
                        self._starts.append(self._offset)

    def _metric(self, line: bytes) -> None:
        event = _event(line)
        if event.get("event") != "metric" or event.get("step") is None:
            return
        value, t, step = event.get("value"), event.get("t"), event.get("step")
        if not (_is_number(value) and _is_number(t) and _is_number(step)):
            return
        key = (str(event.get("name", ""))[:80], str(event.get("split", ""))[:40])
        if key in self._curves or len(self._curves) < 60:
            self._curves.setdefault(key, Curve()).add(Point(float(t), float(value), float(step)))


def _is_number(value: object) -> TypeGuard[float]:
    """One that can be drawn: an agent may send any, and integers beyond all floats."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


class Indexes:
    """The indexes of the runs that were asked about lately."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, EventIndex] = OrderedDict()

    def of(self, path: Path) -> EventIndex:
        with self._lock:
            index = self._kept.setdefault(path, EventIndex(path))
            self._kept.move_to_end(path)
            while len(self._kept) > _MOST_RUNS:
                self._kept.popitem(last=False)
            return index
