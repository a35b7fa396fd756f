"""agent.log of a run on another machine: bounded, since a prelude or an ssh with -v can say more than a disk holds."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

#: From this size on the file is agent.log.1, in the place of an older one, and a new agent.log begins.
MOST = 1 << 20
_BLOCK = 1 << 16


def into(path: Path) -> IO[bytes]:
    """An open end for a process's stderr. What comes out of the other is appended until every copy of it is closed."""
    out, end = os.pipe()
    threading.Thread(target=_copy, args=(out, path), name="agent.log", daemon=True).start()
    return os.fdopen(end, "wb", buffering=0)


def append(path: Path, lines: Iterable[str]) -> None:
    """Lines that came another way."""
    data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    if data:
        _append(path, data)


def _copy(out: int, path: Path) -> None:
    with os.fdopen(out, "rb", buffering=0) as source:
        while block := source.read(_BLOCK):
            _append(path, block)


def _append(path: Path, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a full disk, or a run that was removed; whoever writes must not wait for us
        if path.exists() and path.stat().st_size >= MOST:
            path.replace(path.with_name(f"{path.name}.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            file.write(data)
