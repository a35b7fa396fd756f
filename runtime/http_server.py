"""cheroot, taught the manners that a stranger's request needs.

As it comes, cheroot 11 reads the whole of an unread body into memory before it answers on a kept
connection (a refused upload of 200 MB takes 200 MB), reads a chunk as large as the sender claims,
closes a socket with bytes unread, which on TCP destroys the very answer that said why, and gives each
connection a thread before its request is here (as many silent or slow ones as there are threads stop
the server). Here a body is handed on as it arrives, an unread one closes the connection, the close
waits a moment for the other side to have read the answer, silence costs no thread, and a head is read
strictly (``http_head``).
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from cheroot import wsgi
from cheroot.server import HTTPConnection, HTTPRequest

from . import http_arrival
from .http_head import StrictReader

#: Left unread up to here, the rest of a body is read and the connection kept.
_SMALL_REST = 64 * 1024
_REST_S = 0.2
_LINE = 4096
_NOT_HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhttp:// is spoken here\n"
_LINGER_S = 1.0
_LINGER_BYTES = 4 * 1024 * 1024


def make_server(app: Callable[..., Any], address: str | tuple[str, int], *, threads: int = 4) -> wsgi.Server:
    """A server that is not bound yet (``prepare`` and ``serve`` are cheroot's). ``address``: a unix socket's
    path, or (host, port)."""
    server = _Server(
        address, app, numthreads=threads, server_name="potato-training", shutdown_timeout=2, request_queue_size=128
    )
    server.gateway = _Gateway
    server.timeout = 30  # of one read or write; also how long a quiet connection is kept
    server.keep_alive_conn_limit = 2000
    server.max_request_header_size = http_arrival.HEAD
    server.error_log = _log  # type: ignore[method-assign]
    return server


def _log(msg: str = "", level: int = 20, traceback: bool = False) -> None:
    print(f"http: {msg}", file=sys.stderr)


class _Request(HTTPRequest):
    header_reader = StrictReader()


class _Connection(HTTPConnection):
    RequestHandlerClass = _Request


class _Server(wsgi.Server):
    ConnectionClass = _Connection

    def process_conn(self, conn: Any) -> None:
        """Called for a connection that is new or has something to say. A thread is for those with a request."""
        found = http_arrival.look(conn)
        if found == http_arrival.READY:
            super().process_conn(conn)
        elif found == http_arrival.WAIT and self.can_add_keepalive_connection:
            self.put_conn(conn)
        else:
            if found == http_arrival.FOREIGN:  # who speaks TLS here hears at once that nobody understands it
                with contextlib.suppress(OSError):
                    conn.socket.recv(http_arrival.HEAD)  # what is unread would take the answer along
                    conn.socket.send(_NOT_HTTP)
            conn.close()


class KnownBody:
    """A body of Content-Length bytes. ``read`` gives what is there, at most ``size`` bytes, b"" at the end
    and when the sender is gone; what is missing then stays in ``remaining``."""

    def __init__(self, rfile: Any, length: int):
        self._rfile = rfile
        self.remaining = length

    @property
    def finished(self) -> bool:
        return self.remaining == 0

    def read(self, size: int | None = None) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(1 << 16), b""))
        data = _some(self._rfile, min(size, self.remaining))
        self.remaining -= len(data)
        return data


class ChunkedBody:
    """A body in chunks, read like a KnownBody. Raises ValueError for a framing that is none."""

    def __init__(self, rfile: Any):
        self._rfile = rfile
        self._left = 0
        self._first = True
        self.finished = False
        self.remaining = 0  # not known

    def read(self, size: int | None = None) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(1 << 16), b""))
        if self.finished or size == 0:
            return b""
        if self._left == 0 and not self._next_chunk():
            return b""
        data = _some(self._rfile, min(size, self._left))
        if not data:
            raise ValueError("the sender went away in the middle of a chunk")
        self._left -= len(data)
        return data

    def _next_chunk(self) -> bool:
        if not self._first and self._line() != b"":
            raise ValueError("a chunk is longer than its size says")
        self._first = False
        words = self._line().split(b";")[0].strip()
        if not words or len(words) > 16 or not all(c in b"0123456789abcdefABCDEF" for c in words):
            raise ValueError("a chunk has no size")
        self._left = int(words, 16)
        if self._left:
            return True
        for _ in range(100):  # trailers, which say nothing to us
            if self._line() == b"":
                self.finished = True
                return False
        raise ValueError("too many trailers")

    def _line(self) -> bytes:
        line: bytes = self._rfile.readline(_LINE)
        if not line.endswith(b"\n"):
            raise ValueError("a line of the chunked framing does not end")
        return line.rstrip(b"\r\n")


def _some(rfile: Any, size: int) -> bytes:
    """What has arrived, up to ``size`` bytes; waits only when nothing has."""
    if size <= 0:
        return b""
    raw = getattr(rfile, "raw", None)
    if isinstance(raw, socket.SocketIO) and not rfile.has_data():
        return raw.read(size) or b""  # past the buffer, which is empty: 8 KiB at a time would be slow
    data: bytes = rfile.read1(size)
    return data


class _Gateway(wsgi.Gateway_10):
    def __init__(self, req: Any):
        length = int(req.inheaders.get(b"Content-Length", 0) or 0)
        rfile = req.conn.rfile
        self._body = req.rfile = ChunkedBody(rfile) if req.chunked_read else KnownBody(rfile, length)
        super().__init__(req)

    def start_response(self, status: str, headers: Any, exc_info: Any = None) -> Any:
        self._read_small_rest()
        if not self._body.finished:
            self.req.close_connection = True
        return super().start_response(status, headers, exc_info)

    def _read_small_rest(self) -> None:
        """Reads a little that was left unread, if it is here: then the connection can be kept."""
        if 0 < self._body.remaining <= _SMALL_REST:
            sock = self.req.conn.socket
            with contextlib.suppress(OSError):
                until = time.monotonic() + _REST_S
                while (left := until - time.monotonic()) > 0:
                    sock.settimeout(left)
                    if not self._body.read(_SMALL_REST):
                        break
                sock.settimeout(self.req.server.timeout)

    def respond(self) -> None:
        try:
            super().respond()
        finally:
            if self.req.close_connection and not self._body.finished:
                self._linger()

    def _linger(self) -> None:
        """Ends our half, then reads on for a moment, so that the answer is not lost with the connection."""
        with contextlib.suppress(OSError, ValueError):
            sock = self.req.conn.socket
            sock.shutdown(socket.SHUT_WR)
            until, left = time.monotonic() + _LINGER_S, _LINGER_BYTES
            while left > 0 and (wait := until - time.monotonic()) > 0:
                sock.settimeout(wait)
                got = len(sock.recv(1 << 16))
                if not got:
                    return
                left -= got
