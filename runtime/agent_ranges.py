"""Which part of a file a request wants: ``Range`` and ``If-Range`` of RFC 9110, one range only."""

from __future__ import annotations

import re
from typing import Protocol

_ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.IGNORECASE)


class Headers(Protocol):
    def get(self, name: str) -> str | None: ...


def wanted_range(headers: Headers, size: int, etag: str) -> tuple[int, int] | None:
    """(start, stop) of the bytes to send; the whole file where no range applies; None for 416.

    A range whose ``If-Range`` names another etag is no range: the file has changed, and a part of the
    new one would be glued to a part of the old.
    """
    whole = (0, size)
    found = _ONE_RANGE.fullmatch(headers.get("Range") or "")
    if not found or not (found[1] or found[2]):
        return whole
    condition = headers.get("If-Range")
    if condition is not None and condition.strip() != etag:
        return whole
    if not found[1]:
        last = int(found[2])
        return (max(0, size - last), size) if last and size else None
    start = int(found[1])
    stop = min(size, int(found[2]) + 1) if found[2] else size
    if found[2] and int(found[2]) < start:
        return whole
    return (start, stop) if start < size else None
