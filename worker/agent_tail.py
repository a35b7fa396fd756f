"""Reading a file of events while another process adds to it, without ever taking half a line for one.

Every line has a number, and the number is what the server counts by; so a line that cannot be read is
replaced, not left out.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional, Tuple

from .protocol import EVENT_VERSION, FIRST_SEQ, MAX_EVENT_BYTES, cut_event

_BLOCK = 1 << 20
_REMEMBERED = 256


class Line(NamedTuple):
    """An event, its number, and the JSON that stands for it in a batch."""

    number: int
    raw: bytes
    event: Dict[str, Any]


class Tail:
    """``poll`` gives the lines that are new. The file need not be there yet; it is opened anew each time,
    because a descriptor kept open on shared storage goes on showing what was."""

    def __init__(self, path: str, attempt: int = 1):
        self._path = path
        self._name = os.path.basename(path)
        self._attempt = attempt
        self.restart()

    def restart(self) -> None:
        """From the first line again."""
        self.number = FIRST_SEQ  #: of the line that comes next
        self._offset = 0
        self._inode: Optional[int] = None
        self._head = b""
        self._last = b""
        self._skipping = False
        self.strange: List[str] = []  #: what was noticed about the file; the caller takes it away

    def poll(self, most: int = 5000, final: bool = False) -> List[Line]:
        """At most ``most`` lines and about 1 MiB. A bad line counts as one only when another follows it:
        until then it may be a write that is not all here yet. ``final``: nothing more will be written,
        so what stands at the end without a newline is tried as it is."""
        try:
            found = os.stat(self._path)
            if found.st_size == self._offset and found.st_ino == self._inode and not final:
                return []
            with open(self._path, "rb") as file:
                return self._read(file, most, final)
        except FileNotFoundError:
            return []

    def at_end(self) -> bool:
        """True when all whole lines have been given."""
        try:
            return os.stat(self._path).st_size == self._offset
        except FileNotFoundError:
            return True

    def _read(self, file: BinaryIO, most: int, final: bool) -> List[Line]:
        self._notice_changes(file)
        file.seek(self._offset)
        data = file.read(_BLOCK)
        whole_file = len(data) < _BLOCK
        lines: List[Line] = []
        start = 0
        while len(lines) < most:
            end = data.find(b"\n", start)
            if end < 0:
                break
            if self._skipping:  # the rest of a line that was too long
                self._skipping = False
                start = end + 1
                continue
            parsed = _parse(data[start:end])
            if parsed is None and whole_file and end + 1 == len(data) and not final:
                break
            lines.append(self._line(parsed, "unreadable, skipped"))
            start = end + 1
        if start < len(data) and data.find(b"\n", start) < 0:
            if not whole_file and start == 0:
                if not self._skipping:
                    self._skipping = True
                    lines.append(self._line(None, "is longer than 1 MiB, skipped"))
                start = len(data)
            elif final and whole_file and len(lines) < most:
                if not self._skipping:
                    lines.append(self._line(_parse(data[start:]), "breaks off, skipped"))
                start = len(data)
        self._advance(data[:start])
        return lines

    def _line(self, parsed: Optional[Tuple[bytes, Dict[str, Any]]], why: str) -> Line:
        number = self.number
        self.number += 1
        if parsed is None:
            event = {
                "v": EVENT_VERSION, "event": "log", "t": round(time.time(), 3), "attempt": self._attempt,
                "level": "warning", "msg": "%s line %d %s" % (self._name, number - FIRST_SEQ + 1, why),
            }
            parsed = _dump(event), event
        return Line(number, *parsed)

    def _advance(self, data: bytes) -> None:
        if not self._offset:
            self._head = data[:_REMEMBERED].split(b"\n")[0]  # the first line: its time makes it unique
        self._offset += len(data)
        self._last = (self._last + data)[-_REMEMBERED:] if len(data) < _REMEMBERED else data[-_REMEMBERED:]

    def _notice_changes(self, file: BinaryIO) -> None:
        """A file that was cut or replaced: what is new in it gets the numbers that come next."""
        found = os.fstat(file.fileno())
        same_head = file.read(len(self._head)) == self._head[:found.st_size]
        changed = found.st_ino != self._inode or found.st_size < self._offset or not same_head
        if self._inode is not None and changed:
            if found.st_size >= self._offset and same_head and self._is_continued(file):
                pass  # a copy put in its place, with all that was read
            elif found.st_size < self._offset and same_head and found.st_size:
                self.strange.append("%s became shorter" % self._name)
                self._offset = self._whole_lines(file, found.st_size)
                self._last = b""
            else:
                self.strange.append("%s was replaced; reading it from its start" % self._name)
                self._offset, self._head, self._last, self._skipping = 0, b"", b"", False
        self._inode = found.st_ino

    def _is_continued(self, file: BinaryIO) -> bool:
        file.seek(self._offset - len(self._last))
        return file.read(len(self._last)) == self._last

    def _whole_lines(self, file: BinaryIO, size: int) -> int:
        """The offset after the last newline in the first ``size`` bytes (looking at the last MiB)."""
        start = max(0, size - _BLOCK)
        file.seek(start)
        return start + file.read(size - start).rfind(b"\n") + 1


_found_constant: List[str] = []
_decoder = json.JSONDecoder(parse_constant=_found_constant.append)


def _parse(line: bytes) -> Optional[Tuple[bytes, Dict[str, Any]]]:
    """(JSON to send, event) of a line, None when it is no event. NaN and its kin, which are no JSON,
    become null, and ``nonfinite`` names them."""
    _found_constant.clear()
    try:
        event = _decoder.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict):
        return None
    kind = event.get("event")
    if not isinstance(kind, str) or not 0 < len(kind) <= 64:
        return None
    if _found_constant:
        event.setdefault("nonfinite", _found_constant[0].lower().replace("infinity", "inf"))
        line = _dump(event)
    if len(line) > MAX_EVENT_BYTES:
        event = cut_event(event)
        line = _dump(event)
    return line, event


def _dump(event: Dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
