"""The folder of a learning curve while it is made. It holds people's texts, so it goes however the curve ends.

A lock in it says that its curve lives. One of a curve that was killed outright is removed by the next curve.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "curve-"
LOCK = "lock"


@contextmanager
def folder(root: Path) -> Iterator[tuple[Path, int]]:
    """(a new folder below ``root``, the descriptor of its lock, which a process that works in it is to inherit)."""
    sweep(root)
    while True:
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        lock = _locked(made)
        if lock is not None:
            break  # else another curve's sweep came between
    try:
        yield made, lock
    finally:
        _remove(made, lock)


def sweep(root: Path) -> None:
    """Removes what curves left behind that no longer live."""
    for left in root.glob(PREFIX + "*"):
        if left.is_dir() and not left.is_symlink():
            lock = _locked(left)
            if lock is not None:
                _remove(left, lock)


def _locked(path: Path) -> int | None:
    """The descriptor of the folder's lock, taken; None when somebody has it, or the folder is gone."""
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), (path / LOCK).stat()):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)
    shutil.rmtree(path, ignore_errors=True)  # network file systems keep the name of a file that is open
