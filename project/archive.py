"""A tar.gz whose tar is the same bytes for the same content: fixed times, owners, modes and order."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

#: name in the archive -> an open file at its start, and its size
Member = tuple[str, BinaryIO, int]

BLOCK = 1 << 18
#: On a million texts (258 MB) 6 took three times as long as 4 for an archive 5 % smaller.
LEVEL = 4


def write_archive(path: Path, members: Sequence[Member], check: Callable[[], None]) -> tuple[int, str]:
    """Writes ``path`` (mode 0600) by rename; its size and the SHA-256 of the uncompressed tar.

    ``check`` is called for each block and may raise; then, as after any error, no file is left.
    """
    with replacing(path) as file:
        sink = _Sink(file)
        with tarfile.TarFile(
            fileobj=sink, mode="w", format=tarfile.GNU_FORMAT, copybufsize=BLOCK  # type: ignore[arg-type]
        ) as tar:
            for name, content, size in members:
                info = tarfile.TarInfo(name)
                info.size, info.mode = size, 0o600
                tar.addfile(info, _Watched(content, check))  # type: ignore[arg-type]
        sink.finish()
        size = file.tell()
    return size, sink.digest.hexdigest()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that becomes ``path`` when the block ends well: 0600, fsynced, renamed.

    It is written under another name in the same directory, and removed when the block raises.
    """
    other = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(other, flags, 0o600), "wb", buffering=BLOCK) as file:
            os.fchmod(file.fileno(), 0o600)
            yield file
            file.flush()
            os.fsync(file.fileno())
        other.replace(path)
    except BaseException:
        other.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class _Sink:
    """Where tarfile writes: hashes the tar and compresses it."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._zip = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)  # 31: a gzip header, its time 0
        self._at = 0
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self._file.write(self._zip.compress(data))
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def finish(self) -> None:
        self._file.write(self._zip.flush())


class _Watched:
    """A file that asks before each read whether to go on."""

    def __init__(self, file: BinaryIO, check: Callable[[], None]):
        self._file, self._check = file, check

    def read(self, size: int) -> bytes:
        self._check()
        return self._file.read(size)
