"""A run's model files: what there is, and giving them out.

A name in a URL is looked up among the files that are there; it is never made into a path. Links are not
followed, whoever may have put them there.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..runtime import places
from .errors import NotFound

_MOST = 5000
_BLOCK = 1 << 17
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class File(NamedTuple):
    name: str  #: relative to artifacts/, with /; a line of text, which a file's own name need not be
    size: int
    path: Path


def listed(run_dir: Path) -> list[File]:
    """The regular files below artifacts/, sorted by name."""
    return sorted(_below(run_dir / places.ARTIFACTS, ""))[:_MOST]


def _below(folder: Path, prefix: str) -> Iterator[File]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        name = prefix + _CONTROL.sub("\N{REPLACEMENT CHARACTER}", os.fsencode(entry.name).decode("utf-8", "replace"))
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), f"{name}/")
        elif entry.is_file(follow_symlinks=False):
            yield File(name, entry.stat(follow_symlinks=False).st_size, Path(entry.path))


def opened(run_dir: Path, name: str) -> BinaryIO:
    """The file of that name. Raises NotFound."""
    path = next((file.path for file in listed(run_dir) if file.name == name), None)
    if path is None:
        raise NotFound("there is no such model file")
    return regular(path, "there is no such model file")


def regular(path: Path, missing: str) -> BinaryIO:
    """A file of ours that is one, and no link. Raises NotFound with ``missing``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        raise NotFound(missing) from None
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotFound(missing)
    return file


def blocks(file: BinaryIO, start: int, stop: int) -> Iterator[bytes]:
    """Bytes of a file. Only an error ends the connection, and so tells the reader that this was not all."""
    with file:
        file.seek(start)
        while start < stop:
            block = file.read(min(_BLOCK, stop - start))
            if not block:
                raise RuntimeError("a file is shorter than it was")
            start += len(block)
            yield block


class Tar:
    """All files as one tar below a folder called ``top``, made while it is sent; ``size`` is known before."""

    def __init__(self, run_dir: Path, top: str):
        self._parts = [(_head(f"{top}/{file.name}", file), file) for file in listed(run_dir)]
        self.size = 2 * tarfile.BLOCKSIZE + sum(len(head) + file.size + _rest(file) for head, file in self._parts)

    def __iter__(self) -> Iterator[bytes]:
        for head, file in self._parts:
            yield head
            yield from blocks(regular(file.path, f"{file.name} is gone"), 0, file.size)
            yield b"\0" * _rest(file)
        yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _head(name: str, file: File) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = file.size
    with contextlib.suppress(OSError):
        info.mtime = int(file.path.lstat().st_mtime)
    return info.tobuf(tarfile.PAX_FORMAT)


def _rest(file: File) -> int:
    return -file.size % tarfile.BLOCKSIZE
