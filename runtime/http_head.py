"""A request's head, read strictly.

What two programs may read in two ways (a proxy in front, and this server) would let one request hide behind another:
a length told twice or in two manners, a header folded over lines, a space before its colon. Such a head is no request.
"""

from __future__ import annotations

import re
from typing import Any

from cheroot.server import HeaderReader

_NAME = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_ONCE = (b"Host", b"Content-Length", b"Transfer-Encoding", b"Content-Digest", b"Authorization", b"X-Api-Key")


class StrictReader(HeaderReader):
    """Fills a dict with header names in title case. Raises ValueError, whose words become the 400."""

    def __call__(self, rfile: Any, hdict: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {} if hdict is None else hdict
        while (line := rfile.readline()) != b"\r\n":
            name, colon, value = line.partition(b":")
            if not (colon and line.endswith(b"\r\n") and _NAME.fullmatch(name)) or b"\0" in value:
                raise ValueError("a line of the head is no header")
            name, value = name.title(), value.strip()
            if b"_" in name:
                continue  # as an environment knows it, it would be the one with a dash
            if name in found and name in _ONCE:
                raise ValueError(f"{name.decode()} is told twice")
            if name in found:
                value = found[name] + (b"; " if name == b"Cookie" else b", ") + value
            found[name] = value
        length = found.get(b"Content-Length")
        if length is not None and not _LENGTH.fullmatch(length):
            raise ValueError("Content-Length is no length")
        if length is not None and b"Transfer-Encoding" in found:
            raise ValueError("Content-Length and Transfer-Encoding exclude each other")
        return found
