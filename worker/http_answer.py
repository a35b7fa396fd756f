"""An answer that has to be here in time, however slowly it comes: a time-out of each read alone has no end."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any


class TimelyResponse(http.client.HTTPResponse):
    """Its head must be here within the time-out of its socket, and so must whatever follows a ``renew``."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any):
        super().__init__(sock, *arguments, **options)
        self._timely = _Timely(sock, self.fp.detach())
        self.fp = io.BufferedReader(self._timely)

    def renew(self) -> None:
        self._timely.renew()


class _Timely(io.RawIOBase):
    """What a socket brings until its time is over."""

    def __init__(self, sock: socket.socket, raw: Any):
        self._sock, self._raw = sock, raw
        self._seconds = sock.gettimeout() or 0.0
        self.renew()

    def renew(self) -> None:
        self._until = time.monotonic() + self._seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        left = self._until - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
