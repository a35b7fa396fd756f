"""HTTP/1.1 for the agent: one kept connection, over a unix socket or TCP, with a time-out on everything.

Whoever takes a request and says nothing holds the agent for ``timeout`` and no longer, and so does whoever says
something now and then. Every step has that time: sending, the answer's head, and its body (of a download each part),
before them a proxy's word and TLS; each address of a name has CONNECT_S. A kept connection that turns out to be closed
costs a second round. Only the resolver of names has bounds of its own.

Only ``http.client`` underneath: an idle agent on a login node should weigh no more than it must. What
the other side says is untrusted: answers are read up to a bound.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from typing import Any, BinaryIO, Callable, Dict, Iterator, Optional
from urllib.parse import urlsplit

from .http_answer import TimelyResponse
from .http_upload import TooShort, Upload

_MAX_ANSWER = 4 << 20
_BLOCK = 1 << 16
#: What the server of this protocol answers, faults of its own apart.
_OURS = frozenset((200, 204, 206, 400, 401, 404, 405, 408, 409, 410, 413, 415, 416))
#: Of one try to connect: a lost packet is cheaper to send again than to wait for.
CONNECT_S = 5.0
#: What a proxy that takes a whole body before it passes it on is granted for that.
SLOWEST_BYTES_S = 2e6

Connect = Callable[[str, float], http.client.HTTPConnection]


class Unreachable(Exception):
    """No answer: nobody listens, the connection broke, or it took too long. Worth trying again."""


class Answer:
    """A whole answer. ``json`` is {} for a body that is no JSON object (a proxy's page, say)."""

    def __init__(self, status: int, headers: Any, body: bytes):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Dict[str, Any]:
        try:
            value = json.loads(self.body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def is_ours(self) -> bool:
        """True when the answer can be the server's own word and not that of something in between: a proxy that
        limits rates (429), asks for a login (403, 407) or has no server behind it says other things."""
        return self.status in _OURS and (self.status == 204 or bool(self.json))


class Client:
    """Requests to one server with one token. Not for several threads.

    ``address`` is the path of a unix socket, or an http(s) URL. A kept connection that the other side
    has closed meanwhile is opened anew once, which is safe since every request of the protocol may be
    repeated.
    """

    def __init__(self, address: str, token: str, *, timeout: float = 15.0, connect: Optional[Connect] = None):
        self._address = address
        self._token = token
        self.timeout = timeout
        self._connect = connect or plain_connect
        self._kept: Optional[http.client.HTTPConnection] = None
        self._prefix = "" if address.startswith("/") else urlsplit(address).path.rstrip("/")

    def request(
        self, method: str, path: str, body: Optional[bytes] = None, headers: Optional[Dict[str, str]] = None
    ) -> Answer:
        """Raises Unreachable."""
        return self._whole(self._send(method, path, body, headers or {}))

    def post(self, path: str, value: Any) -> Answer:
        return self.request("POST", path, encode(value), {"Content-Type": "application/json"})

    def download(self, path: str, headers: Dict[str, str]) -> "Download":
        """An answer whose body is read by the caller, in a ``with``. Raises Unreachable."""
        return Download(self._send("GET", path, None, headers), self)

    def upload(
        self, path: str, file: BinaryIO, size: int, headers: Dict[str, str],
        each_block: Callable[[], None] = lambda: None,
    ) -> Answer:
        """PUTs ``size`` bytes of the file. Stops sending as soon as the server answers: it may have said
        413 to the headers already. Raises Unreachable."""
        self.close()  # never on a kept connection: half a body cannot be taken back
        with self._broken_is_unreachable():
            connection = self._open()
            connection.putrequest("PUT", self._prefix + path, skip_accept_encoding=True)
            for name, value in dict(self._headers(), **headers).items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(size))
            connection.endheaders()
        sending = Upload(connection, each_block, self._broken_is_unreachable)
        try:
            left = sending.send(file, size)
        except TooShort:
            self.close()
            raise Unreachable("the file became shorter while it was sent") from None
        answer = self._whole(sending.answer(self.timeout if left else self.timeout + size / SLOWEST_BYTES_S))
        if left:
            self.close()
        return answer

    def close(self) -> None:
        if self._kept is not None:
            if self._kept.sock is not None:
                # Closing alone waits for the last reader of the socket: a traceback may hold one, seen on Python 3.10.
                with contextlib.suppress(OSError):
                    self._kept.sock.shutdown(socket.SHUT_RDWR)
            self._kept.close()
            self._kept = None

    def _headers(self) -> Dict[str, str]:
        return {"Authorization": "Bearer " + self._token, "Accept-Encoding": "identity"}

    def _open(self) -> http.client.HTTPConnection:
        if self._kept is None:
            self._kept = self._connect(self._address, self.timeout)
            self._kept._create_connection = _open_tcp  # type: ignore[attr-defined]
            self._kept.response_class = TimelyResponse
        if self._kept.sock is not None:
            self._kept.sock.settimeout(self.timeout)
        self._kept.timeout = self.timeout
        return self._kept

    @contextlib.contextmanager
    def _broken_is_unreachable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(describe(error)) from error

    def _send(
        self, method: str, path: str, body: Optional[bytes], headers: Dict[str, str]
    ) -> http.client.HTTPResponse:
        everything = dict(self._headers(), **headers)
        was_kept = self._kept is not None and self._kept.sock is not None
        with self._broken_is_unreachable():
            try:
                connection = self._open()
                connection.request(method, self._prefix + path, body, everything)
                return connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self.close()
                if not was_kept:
                    raise
            connection = self._open()
            connection.request(method, self._prefix + path, body, everything)
            return connection.getresponse()

    def _whole(self, response: http.client.HTTPResponse) -> Answer:
        with self._broken_is_unreachable():
            _renew(response)
            body = response.read(_MAX_ANSWER + 1)
            if len(body) <= _MAX_ANSWER and response.length:
                raise http.client.IncompleteRead(body, response.length)
        if len(body) > _MAX_ANSWER or response.will_close:
            self.close()
        return Answer(response.status, response.headers, body[:_MAX_ANSWER])


class Download:
    """The answer to a GET. Errors of the connection are Unreachable, those of the caller stay their own."""

    def __init__(self, response: http.client.HTTPResponse, client: Client):
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._left = response.length  # counted here: read1 of Python 3.8 to 3.12 does not
        self._client = client

    def read(self) -> bytes:
        """The bytes that are there, b"" at the end. A body that ends early raises Unreachable."""
        if self._left == 0:
            return b""
        with self._client._broken_is_unreachable():
            _renew(self._response)
            block = self._response.read1(_BLOCK if self._left is None else min(_BLOCK, self._left))
            if self._left is not None:
                if not block:
                    raise http.client.IncompleteRead(b"", self._left)
                self._left -= len(block)
            return block

    def whole(self) -> Answer:
        """The rest as an answer, when it is not what was asked for."""
        return self._client._whole(self._response)

    def __enter__(self) -> "Download":
        return self

    def __exit__(self, *_: Any) -> None:
        if not self._response.isclosed():
            self._client.close()  # the rest is not wanted


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            self.sock = None
            raise


def plain_connect(address: str, timeout: float) -> http.client.HTTPConnection:
    """A connection, not opened yet, to a unix socket or an http:// URL. Raises ValueError for another."""
    if address.startswith("/"):
        return _UnixConnection(address, timeout)
    parts = urlsplit(address)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("not an address that can be reached from here: " + address)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)


def _open_tcp(address: Any, timeout: float, source: Any = None) -> socket.socket:
    sock = socket.create_connection(address, min(timeout, CONNECT_S), source)
    sock.settimeout(timeout)
    return sock


def _renew(response: http.client.HTTPResponse) -> None:
    assert isinstance(response, TimelyResponse)
    response.renew()


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def describe(error: BaseException) -> str:
    """One short line about a failed request; it never holds a header."""
    if isinstance(error, socket.timeout):
        return "no answer in time"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer broke off"
    text = getattr(error, "strerror", None) or str(error)
    return text or type(error).__name__
