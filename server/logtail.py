"""Parts of a run's log, by bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

#: Of one answer.
MOST = 256 * 1024
#: What a filter looks through, from the end.
_SEARCHED = 8 * 1024 * 1024


class Part(NamedTuple):
    """Whole lines; ``begin`` and ``next`` are where they begin and end in the file."""

    text: str
    begin: int
    next: int


def after(path: Path, position: int) -> Part:
    """The whole lines from ``position`` on, as many as fit into one answer."""
    data = _read(path, position, MOST)
    if data is None:
        return Part("", 0, 0)
    begin, block = data
    end = block.rfind(b"\n") + 1
    return Part(block[:end].decode("utf-8", "replace"), begin, begin + end)


def last(path: Path, size: int = MOST) -> Part:
    """The last whole lines."""
    try:
        total = path.stat().st_size
    except OSError:
        return Part("", 0, 0)
    data = _read(path, max(0, total - size), size)
    if data is None:
        return Part("", 0, 0)
    begin, block = data
    skipped = block.find(b"\n") + 1 if begin else 0  # the line in whose middle it begins
    end = block.rfind(b"\n") + 1
    return Part(block[skipped:end].decode("utf-8", "replace"), begin + skipped, begin + end)


def matching(path: Path, word: str, most: int = 1000) -> list[str]:
    """The last lines that hold ``word``, whatever the case."""
    try:
        total = path.stat().st_size
    except OSError:
        return []
    data = _read(path, max(0, total - _SEARCHED), _SEARCHED)
    wanted = word.casefold()
    lines = data[1].decode("utf-8", "replace").splitlines() if data else []
    return [line for line in lines if wanted in line.casefold()][-most:]


def _read(path: Path, position: int, size: int) -> tuple[int, bytes] | None:
    try:
        with path.open("rb") as file:
            if position > os.fstat(file.fileno()).st_size:  # replaced by a shorter one
                position = 0
            file.seek(position)
            return position, file.read(size)
    except FileNotFoundError:
        return None
