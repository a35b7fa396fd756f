"""A run's model files: what there is, and giving them out.

A name in a URL is looked up among the files that are there; it is never made into a path. Links are not
followed, whoever may have put them there.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..runtime import places
from .errors import NotFound

_MOST = 5000
_BLOCK = 1 << 17


class File(NamedTuple):
    name: str  #: relative to artifacts/, with /
    size: int


def listed(run_dir: Path) -> list[File]:
    """The regular files below artifacts/, sorted by name."""
    return sorted(_below(run_dir / places.ARTIFACTS, ""))[:_MOST]


def _below(folder: Path, prefix: str) -> Iterator[File]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            yield File(prefix + entry.name, entry.stat(follow_symlinks=False).st_size)


def opened(run_dir: Path, name: str) -> BinaryIO:
    """The file of that name. Raises NotFound."""
    if name not in {file.name for file in listed(run_dir)}:
        raise NotFound("there is no such model file")
    return regular(run_dir / places.ARTIFACTS / name, "there is no such model file")


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


def blocks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK):
            yield block


def as_tar(run_dir: Path, top: str) -> Iterator[bytes]:
    """All files as one tar, below a folder of that name, made while it is sent."""
    for file in listed(run_dir):
        try:
            source = opened(run_dir, file.name)
        except NotFound:
            continue
        info = tarfile.TarInfo(f"{top}/{file.name}")
        info.size, info.mtime = os.fstat(source.fileno()).st_size, int(os.fstat(source.fileno()).st_mtime)
        yield info.tobuf(tarfile.PAX_FORMAT)
        sent = 0
        for block in blocks(source):
            sent += len(block)
            yield block
        yield b"\0" * (-sent % tarfile.BLOCKSIZE)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)
