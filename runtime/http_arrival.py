"""Whether a request is here, looked at without reading it: one that comes slowly, or never ends, costs no thread.

A handful of connections that send a byte now and then would else have every thread of the server wait for them. A
request counts as here with its head and, when that is small, its body: what a stranger may send (a login) is small, and
a larger body is read only once its sender has shown a key or a token.
"""

from __future__ import annotations

import re
import select
import socket
import time
from typing import Any

#: A head above this is refused, by whoever reads it.
HEAD = 32 * 1024
#: A body up to this is waited for.
BODY = 16 * 1024
#: From the first look at a request that is not here yet.
WITHIN_S = 15.0

#: A method's first letter, or the empty line that may stand before it.
_BEGINNINGS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz\r"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,12})", re.IGNORECASE)

READY, WAIT, TOO_LATE, FOREIGN = "ready", "wait", "too late", "foreign"


def look(conn: Any) -> str:
    """READY for a thread; WAIT until there is more; TOO_LATE; FOREIGN for what is no HTTP: TLS, mostly. ``conn`` is
    one of cheroot's."""
    sock = conn.socket
    _wake_at(sock, 1)
    buffered = bytes(conn.rfile.peek()) if conn.rfile.has_data() else b""
    if not buffered and not _readable(sock):
        return WAIT  # nothing was said: a kept connection
    try:
        peeked = sock.recv(HEAD + BODY, socket.MSG_PEEK) if _readable(sock) else b""
    except OSError:
        return READY  # to find out what it is
    arrived = buffered + peeked
    if arrived and arrived[0] not in _BEGINNINGS:
        return FOREIGN
    known, since = getattr(conn, "arriving", (0, time.monotonic()))
    conn.arriving = (len(arrived), since)
    if _is_whole(arrived) or len(arrived) <= known:  # no more than before: the sender has ended
        del conn.arriving
        return READY
    if buffered or time.monotonic() - since > WITHIN_S:
        return TOO_LATE  # nobody sends a half behind a whole one but to hold us
    _wake_at(sock, len(peeked) + 1)
    return WAIT


def _is_whole(arrived: bytes) -> bool:
    head, end, body = arrived.partition(b"\r\n\r\n")
    if not end:
        return len(arrived) > HEAD
    lengths = [int(length) for length in _LENGTH.findall(head)]
    wanted = max(lengths, default=0)
    return wanted > BODY or len(body) >= wanted


def _wake_at(sock: socket.socket, count: int) -> None:
    """From so many bytes on the socket counts as readable; where the system does not know that, from one."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    except OSError:
        return


def _readable(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))
