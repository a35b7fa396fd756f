"""Unpacks a bundle from a stream: regular files and directories, and nothing else that tar can say.

Written for a stranger's archive: what is allowed is listed, the rest is refused. No links or devices,
no absolute names, no "..", no name twice; the bytes are counted as they come, whatever headers claim,
and no header can make it hold more than a few KiB.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, Optional

_RECORD = 512
_BLOCK = 1 << 16
_LONGEST_NAME = 4096
_LONGEST_PAX = 64 * 1024


class BadArchive(Exception):
    """An archive that is cut short, or holds something that is not allowed."""


def untar(read: Callable[[int], bytes], target: str, *, most_bytes: int, most_members: int = 10_000_000) -> int:
    """Unpacks into the fresh directory ``target``; returns the bytes of all files.

    ``read(n)`` gives up to n bytes of the uncompressed tar, b"" at its end. Everything up to that end is
    read, so that a digest taken on the way covers the whole stream. Raises BadArchive, OSError.
    """
    return _Untar(read, target, most_bytes, most_members).run()


class _Untar:
    def __init__(self, read: Callable[[int], bytes], target: str, most_bytes: int, most_members: int):
        self._read = read
        self._target = target
        self._left_bytes = most_bytes
        self._left_members = most_members
        self._total = 0

    def run(self) -> int:
        extended: Dict[str, str] = {}
        while True:
            header = self._exactly(_RECORD, may_end=True)
            if header is None:
                raise BadArchive("the archive ends without its end mark")
            if not header.strip(b"\0"):
                self._to_the_end()
                return self._total
            self._left_members -= 1
            if self._left_members < 0:
                raise BadArchive("the archive has too many members")
            extended = self._member(header, extended)

    def _member(self, header: bytes, extended: Dict[str, str]) -> Dict[str, str]:
        """Reads one member; returns what an extended header says about the one after it."""
        _check_sum(header)
        kind = header[156:157]
        size = _number(header[124:136])
        if kind in (b"x", b"L"):
            data = self._small(size, _LONGEST_PAX if kind == b"x" else _LONGEST_NAME)
            return _pax(data) if kind == b"x" else {"path": _text(data.rstrip(b"\0"))}
        if kind == b"g":
            self._small(size, _LONGEST_PAX)
            return {}
        name = extended.get("path") or _header_name(header)
        if "size" in extended:
            size = _decimal(extended["size"])
        if kind in (b"0", b"\0"):
            self._file(self._place(name), size, name)
        elif kind == b"5":
            self._directory(self._place(name.rstrip("/")), name)
        else:
            raise BadArchive("%r is neither a file nor a directory" % name)
        return {}

    def _place(self, name: str) -> str:
        """The path for a member's name, its parents made. Raises BadArchive for a name that leads elsewhere."""
        parts = name.split("/")
        if len(name) > _LONGEST_NAME or len(parts) > 32:
            raise BadArchive("a name in the archive is too long")
        for part in parts:
            if part in ("", ".", "..") or "\\" in part or any(ord(letter) < 32 for letter in part):
                raise BadArchive("%r is not a name inside the bundle" % name)
        parent = self._target
        for part in parts[:-1]:
            parent = os.path.join(parent, part)
            self._directory(parent, name)
        return os.path.join(parent, parts[-1])

    def _directory(self, path: str, name: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise BadArchive("%r is in the archive twice" % name) from None

    def _file(self, path: str, size: int, name: str) -> None:
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise BadArchive("the archive unpacks to more than is allowed")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise BadArchive("%r is in the archive twice" % name) from None
        with os.fdopen(descriptor, "wb") as file:
            left = size
            while left:
                block = self._read(min(_BLOCK, left))
                if not block:
                    raise BadArchive("the archive ends in the middle of %r" % name)
                file.write(block)
                left -= len(block)
        self._total += size
        self._exactly(-size % _RECORD)

    def _small(self, size: int, most: int) -> bytes:
        if size > most:
            raise BadArchive("a header in the archive is too long")
        data = self._exactly(size)
        self._exactly(-size % _RECORD)
        return data or b""

    def _exactly(self, size: int, may_end: bool = False) -> Optional[bytes]:
        data = b""
        while len(data) < size:
            block = self._read(size - len(data))
            if not block:
                if may_end and not data:
                    return None
                raise BadArchive("the archive is cut short")
            data += block
        return data

    def _to_the_end(self) -> None:
        """Reads the zeros that fill the last block; anything else after the end mark is refused."""
        while True:
            block = self._read(_BLOCK)
            if not block:
                return
            if block.strip(b"\0"):
                raise BadArchive("something follows the archive's end")


def _header_name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadArchive("a name in the archive is not UTF-8") from None


def _number(field: bytes) -> int:
    """An octal number, or one of GNU's binary ones (first byte 0x80), as large files have."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    text = field.split(b"\0", 1)[0].strip()
    try:
        return int(text or b"0", 8)
    except ValueError:
        raise BadArchive("a header of the archive is damaged") from None


def _decimal(text: str) -> int:
    if not text.isdigit() or len(text) > 20:
        raise BadArchive("a header of the archive is damaged")
    return int(text)


def _check_sum(header: bytes) -> None:
    expected = _number(header[148:156])
    if sum(header[:148]) + 8 * 32 + sum(header[156:]) != expected:
        raise BadArchive("a header of the archive is damaged")


def _pax(data: bytes) -> Dict[str, str]:
    """The records ``<length> <key>=<value>\\n`` of an extended header; only path and size mean anything here."""
    found: Dict[str, str] = {}
    while data:
        length_text, space, _ = data.partition(b" ")
        if not space or not length_text.isdigit() or len(length_text) > 6:
            raise BadArchive("a header of the archive is damaged")
        length = int(length_text)
        record, data = data[:length], data[length:]
        key, equals, value = record[len(length_text) + 1:].partition(b"=")
        if len(record) != length or not equals or not value.endswith(b"\n"):
            raise BadArchive("a header of the archive is damaged")
        if key in (b"path", b"size"):
            found[key.decode()] = _text(value[:-1])
    return found
