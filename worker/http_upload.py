"""Sending a large body and listening meanwhile: the server may have refused it by its headers already."""

from __future__ import annotations

import http.client
import io
import select
from typing import Any, BinaryIO, Callable, ContextManager

_BLOCK = 1 << 16
_PULSE_S = 1.0


class TooShort(Exception):
    """The file became shorter while it was sent."""


class Upload:
    """A body on a connection whose headers are out. ``send``, then ``answer``."""

    def __init__(
        self, connection: http.client.HTTPConnection, each_block: Callable[[], None],
        guard: Callable[[], ContextManager[None]],
    ):
        self._connection = connection
        self._guard = guard  #: around what may break of the connection; errors of the file are the caller's
        self._sock: Any = connection.sock
        self._each_block = each_block
        self._secure = hasattr(self._sock, "pending")  # TLS; the import of ssl alone would cost every agent memory
        self._begun = b""
        self._closed = False

    def send(self, file: BinaryIO, size: int) -> int:
        """The number of bytes that were not wanted any more: the server has answered, or has gone."""
        left = size
        while left and not self._arrived(0):
            block = file.read(min(_BLOCK, left))
            if not block:
                raise TooShort()
            try:
                self._connection.send(block)
            except (BrokenPipeError, ConnectionResetError):
                break  # an answer may be there all the same
            except OSError as error:
                with self._guard():
                    raise error
            left -= len(block)
            self._each_block()
        return left

    def answer(self, patience_s: float) -> http.client.HTTPResponse:
        """Waits for the answer to begin, with the pulse going on: a proxy may need long to pass a body on."""
        for _ in range(max(1, int(patience_s / _PULSE_S))):
            if self._arrived(_PULSE_S):
                break
            self._each_block()
        usual: Any = self._connection.response_class

        def resumed(*arguments: Any, **options: Any) -> http.client.HTTPResponse:
            response: http.client.HTTPResponse = usual(*arguments, **options)
            if self._begun:
                response.fp = io.BufferedReader(_Resumed(self._begun, response.fp))
            return response

        self._connection.response_class = resumed  # type: ignore[assignment]
        try:
            with self._guard():
                return self._connection.getresponse()
        finally:
            self._connection.response_class = usual

    def _arrived(self, wait_s: float) -> bool:
        """Whether something of the answer is here. What makes a TLS connection readable may be its own talk:
        with TLS 1.3 the server's session tickets come after the handshake. So there some bytes are read."""
        if self._begun or self._closed:
            return True
        if not (self._secure and self._sock.pending()) and not select.select([self._sock], [], [], wait_s)[0]:
            return False
        if not self._secure:
            return True
        import ssl

        usual = self._sock.gettimeout()
        self._sock.settimeout(0)
        try:
            self._begun = self._sock.recv(_BLOCK)
            self._closed = not self._begun
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            self._closed = True
        finally:
            self._sock.settimeout(usual)
        return True


class _Resumed(io.RawIOBase):
    """A stream of which the first bytes were read already."""

    def __init__(self, begun: bytes, rest: Any):
        self._begun, self._rest = begun, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._begun:
            count: int = self._rest.readinto1(buffer)
            return count
        part = self._begun[:len(buffer)]
        buffer[:len(part)] = part
        self._begun = self._begun[len(part):]
        return len(part)

    def close(self) -> None:
        self._rest.close()
        super().close()
