"""Reads a tar that a stranger sends, trusting nothing in it.

Only regular files and directories, only names that the sender announced, each once and with exactly the bytes
announced; no links, devices, absolute names or "..". A block at a time, whatever the headers say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

_RECORD = 512
_BLOCK = 1 << 18
_LONGEST_HEADER = 64 * 1024
_LONGEST_NAME = 4096


class BadArchive(Exception):
    """The archive holds something that is not allowed, or is not whole."""


class CutShort(BadArchive):
    """The archive ends before its end."""


def untar(
    read: Callable[[int], bytes], target: Path, sizes: Mapping[str, int],
    on_bytes: Callable[[int], None] = lambda n: None,
) -> None:
    """Unpacks the announced files (``sizes``: name -> bytes) into the fresh directory ``target``.

    ``read(n)`` gives up to n bytes, b"" at the end. Raises BadArchive, OSError, and what ``read`` raises.
    """
    reader = _Reader(read)
    left = dict(sizes)
    name, size = "", -1         # of an extended header, for the member after it
    while True:
        header = reader.exactly(_RECORD)
        if not header.strip(b"\0"):
            break
        _check_sum(header)
        kind, length = header[156:157], _number(header[124:136])
        if kind == b"x":
            name, size = _pax(reader.padded(length, _LONGEST_HEADER))
            continue
        if kind == b"g":
            reader.padded(length, _LONGEST_HEADER)
            continue
        if kind == b"L":
            name = _text(reader.padded(length, _LONGEST_NAME).rstrip(b"\0"))
            continue
        name, size = name or _header_name(header), size if size >= 0 else length
        plain = safe_name(name.rstrip("/") if kind == b"5" else name)
        if kind == b"5":
            if plain:
                _directory(target, plain)
        elif kind in (b"0", b"\0"):
            if plain not in left:
                raise BadArchive(f"{plain!r} was not announced, or comes twice")
            if left.pop(plain) != size:
                raise BadArchive(f"{plain!r} has not the size that was announced")
            _file(reader, target, plain, size, on_bytes)
        else:
            raise BadArchive(f"{name!r} is neither a file nor a directory")
        name, size = "", -1
    if left:
        raise BadArchive(f"{len(left)} files did not come, {min(left)!r} among them")
    reader.to_the_end()


def safe_name(name: str) -> str:
    """The name without a leading "./", "" for the directory itself. Raises BadArchive for one that leads elsewhere."""
    while name.startswith("./"):
        name = name[2:]
    if name in ("", "."):
        return ""
    parts = name.split("/")
    if len(name.encode("utf-8", "replace")) > _LONGEST_NAME or len(parts) > 32:
        raise BadArchive("a name in the archive is too long")
    for part in parts:
        if part in ("", ".", "..") or "\\" in part or re.search(r"[\x00-\x1f\x7f]", part):
            raise BadArchive(f"{name!r} is not a name inside the archive")
    return name


def _directory(target: Path, name: str) -> None:
    path = target
    for part in name.split("/"):
        path = path / part
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            if not path.is_dir() or path.is_symlink():
                raise BadArchive(f"{name!r} is in the archive twice") from None


def _file(reader: _Reader, target: Path, name: str, size: int, on_bytes: Callable[[int], None]) -> None:
    folder = name.rpartition("/")[0]
    if folder:
        _directory(target, folder)
    try:
        descriptor = os.open(target / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise BadArchive(f"{name!r} is in the archive twice") from None
    try:
        left = size
        while left:
            block = reader.some(min(_BLOCK, left))
            view = memoryview(block)
            while view:
                view = view[os.write(descriptor, view):]
            left -= len(block)
            on_bytes(len(block))
    finally:
        os.close(descriptor)
    reader.exactly(-size % _RECORD)


class _Reader:
    def __init__(self, read: Callable[[int], bytes]):
        self._read = read

    def some(self, most: int) -> bytes:
        data = self._read(most)
        if not data:
            raise CutShort("the archive is cut short")
        return data

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self.some(size - len(data))
        return data

    def padded(self, size: int, most: int) -> bytes:
        if size > most:
            raise BadArchive("a header of the archive is too long")
        return self.exactly(size + -size % _RECORD)[:size]

    def to_the_end(self) -> None:
        """The zeros that fill the last block, and nothing else."""
        while block := self._read(_BLOCK):
            if block.strip(b"\0"):
                raise BadArchive("something follows the archive's end")


def _number(field: bytes) -> int:
    """An octal number, or GNU's binary form for large ones."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip()
    if not re.fullmatch(rb"[0-7]*", digits):
        raise BadArchive("a header of the archive is damaged")
    return int(digits or b"0", 8)


def _check_sum(header: bytes) -> None:
    if sum(header[:148]) + 8 * 32 + sum(header[156:]) != _number(header[148:156]):
        raise BadArchive("a header of the archive is damaged")


def _header_name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadArchive("a name in the archive is not UTF-8") from None


def _pax(data: bytes) -> tuple[str, int]:
    """(path, size) of an extended header, "" and -1 where it says nothing of them."""
    name, size = "", -1
    while data:
        words = re.match(rb"(\d{1,6}) ([^=\n]+)=", data)
        length = int(words[1]) if words else 0
        if words is None or not words.end() < length <= len(data) or data[length - 1:length] != b"\n":
            raise BadArchive("a header of the archive is damaged")
        value = data[words.end():length - 1]
        if words[2] == b"path":
            name = _text(value)
        elif words[2] == b"size":
            if not re.fullmatch(rb"\d{1,18}", value):
                raise BadArchive("a header of the archive is damaged")
            size = int(value)
        data = data[length:]
    return name, size
