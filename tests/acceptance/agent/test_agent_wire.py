"""Bodies and connections as a stranger may send them: too large, too slow, broken, or without an end."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl

import pytest
from potato_training.worker.protocol import API_PREFIX, MAX_BATCH_BYTES, MAX_MESSAGE_BYTES

JOB = f"{API_PREFIX}/jobs/run-1"
CLAIM = {"agent_id": "a", "hostname": "h"}


@pytest.mark.parametrize(("method", "path", "limit"), [
    ("POST", f"{API_PREFIX}/claim", MAX_MESSAGE_BYTES),
    ("POST", f"{JOB}/events", MAX_BATCH_BYTES),
    ("POST", f"{JOB}/result", MAX_MESSAGE_BYTES),
    ("PUT", f"{JOB}/predictions", 100_000),
])
def test_a_length_above_the_limit_is_413_before_a_byte_of_it(server, method, path, limit):
    server.job.limit_bytes = 100_000
    head = server.head(method, path, Content_Length=limit + 1, Content_Digest=server.digest(b""))
    answer = server.raw([head])
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close" in answer


@pytest.mark.parametrize("path", [f"{API_PREFIX}/claim", f"{JOB}/events", f"{JOB}/predictions"])
def test_a_huge_body_from_a_stranger_is_refused_and_not_held(server, path):
    """401 comes while the body is still being sent, and nothing of it is kept in memory."""
    import tracemalloc

    head = server.head("PUT" if "pred" in path else "POST", path, Content_Length=200_000_000)
    head = head.replace(server.bench.token.encode(), b"wrong")
    tracemalloc.start()
    answer = server.raw([head, *[b"x" * 1_000_000] * 200])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert peak < 20_000_000


def chunks(*blocks):
    return b"".join(b"%x\r\n%s\r\n" % (len(block), block) for block in blocks) + b"0\r\n\r\n"


def test_predictions_may_come_in_chunks(server):
    data = b"abc" * 100_000
    head = server.head(
        "PUT", f"{JOB}/predictions", Transfer_Encoding="chunked", Content_Digest=server.digest(data), Connection="close"
    )
    answer = server.raw([head, chunks(data[:1], data[1:50_000], data[50_000:])])
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert server.job.predictions == data


def test_too_many_predictions_in_chunks_are_413_at_the_byte(server):
    server.job.limit_bytes = 100_000
    head = server.head("PUT", f"{JOB}/predictions", Transfer_Encoding="chunked", Content_Digest=server.digest(b""))
    endless = (b"%x\r\n%s\r\n" % (1000, b"x" * 1000) for _ in range(50_000))
    answer = server.raw([head, *endless])
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert sum(map(len, server.intake.sinks[0].blocks)) == 100_001
    assert server.intake.sinks[0].aborted
    assert server.job.predictions is None


def test_a_chunk_that_claims_to_be_huge_is_taken_as_it_comes(server):
    server.job.limit_bytes = 5000
    head = server.head("PUT", f"{JOB}/predictions", Transfer_Encoding="chunked", Content_Digest=server.digest(b""))
    answer = server.raw([head, b"ffffffffff\r\n", b"x" * 6000])
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("framing", [
    b"zz\r\nab\r\n", b"-1\r\n", b"\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"1" * 5000, b"5\r\nab",
])
def test_broken_framing_is_no_upload(server, framing):
    head = server.head("PUT", f"{JOB}/predictions", Transfer_Encoding="chunked", Content_Digest=server.digest(b"ab"))
    with socket.create_connection(server.address, timeout=30) as sock:
        sock.sendall(head + framing)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(OSError):
            while block := sock.recv(65536):
                answer += block
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert server.job.predictions is None


def test_a_body_that_ends_early_is_no_upload(server):
    data = b"abc"
    head = server.head("PUT", f"{JOB}/predictions", Content_Length=10, Content_Digest=server.digest(data))
    with socket.create_connection(server.address, timeout=30) as sock:
        sock.sendall(head + data)
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(65536).startswith(b"HTTP/1.1 400 ")
    assert server.job.predictions is None
    assert server.intake.sinks[0].aborted


@pytest.mark.parametrize("header", [None, "", "sha-256=abc", "sha-512=:AAAA:", "sha-256=:" + "A" * 44 + ":"])
def test_predictions_without_a_digest_are_400(server, header):
    headers = {} if header is None else {"Content-Digest": header}
    status, _, body = server.ask("PUT", f"{JOB}/predictions", b"x", headers=headers)
    assert (status, body["field"]) == (400, "Content-Digest")


def test_predictions_with_the_wrong_digest_are_400_and_the_old_ones_stay(server):
    assert server.ask("PUT", f"{JOB}/predictions", b"old", headers={"Content-Digest": server.digest(b"old")})[0] == 200
    assert server.ask("PUT", f"{JOB}/predictions", b"new", headers={"Content-Digest": server.digest(b"old")})[0] == 400
    assert server.job.predictions == b"old"


def test_a_connection_is_kept_after_a_refusal_of_something_small(server):
    for _ in range(3):
        assert server.ask("POST", f"{API_PREFIX}/claim", b"x" * 1000, token="wrong")[0] == 401
        server_socket = server.connection.sock
        assert server.ask("POST", f"{API_PREFIX}/claim", CLAIM)[0] == 200
        assert server.connection.sock is server_socket


@pytest.mark.parametrize(("method", "path"), [
    ("POST", f"{API_PREFIX}/claim"), ("POST", f"{JOB}/events"), ("PUT", f"{JOB}/predictions"),
    ("POST", f"{JOB}/result"),
])
def test_a_compressed_body_is_not_taken(server, method, path):
    headers = {"Content-Encoding": "gzip", "Content-Digest": server.digest(b"x")}
    status, _, _ = server.ask(method, path, b"x", headers=headers)
    assert status == 415


def test_a_body_that_trickles_is_given_up(server, monkeypatch):
    from potato_training.runtime import agent_bodies

    monkeypatch.setattr(agent_bodies.read_json, "__kwdefaults__", {"seconds": 0.0})
    head = server.head("POST", f"{API_PREFIX}/claim", Content_Length=100_000)
    with socket.create_connection(server.address, timeout=30) as sock:
        sock.sendall(head + b"{")
        assert sock.recv(65536).startswith(b"HTTP/1.1 408 ")


# --- connections ----------------------------------------------------------------------------------------


def test_the_private_door_is_for_its_owner_only_and_leaves_nothing_behind(bench):
    path = bench.listener.socket
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.parent.name.startswith("p-") and len(path.parent.name) == 10 and path.name == "s"
    bench.listener.stop()
    assert not path.parent.exists()
    bench.listener.stop()  # twice is fine


def test_silent_connections_do_not_stop_the_others(server):
    """More connections that say nothing than there are threads."""
    idle = [socket.create_connection(server.address) for _ in range(10)]
    try:
        assert server.ask("POST", f"{API_PREFIX}/claim", CLAIM)[0] == 200
    finally:
        for sock in idle:
            sock.close()


def test_headers_without_end_are_refused(server):
    head = server.head("GET", f"{JOB}/bundle", X="x" * 100_000)
    assert server.raw([head]).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("lines", [
    "Content-Length: 2\r\nContent-Length: 40", "Content-Length: 40\r\nTransfer-Encoding: chunked", "Content-Length: +2",
    "Content-Length: 2_0", "Content-Length: -1", "Content-Length: 2, 2", "Content-Length : 2", "Content-Length:\r\n 2",
    "Content-Length: 2\r\nX: a\0b", "Content-Length: 2\r\nno header", "Host: y", "Authorization: Bearer other",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "X: a\nContent-Length: 2",
])
def test_a_head_that_could_be_read_in_two_ways_is_no_request(server, lines):
    """What follows it is not taken for another request either."""
    head = server.head("POST", f"{API_PREFIX}/claim")[:-2] + lines.encode() + b"\r\n\r\n"
    body = b"{}" + server.head("GET", f"{JOB}/bundle")
    answer = server.raw([head + body])
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert server.ask("POST", f"{API_PREFIX}/claim", CLAIM)[0] == 200


def test_who_greets_in_tls_hears_at_once_that_it_is_not_spoken_here(server):
    with socket.create_connection(server.address, timeout=30) as sock, pytest.raises(ssl.SSLError):
        ssl.create_default_context().wrap_socket(sock, server_hostname="localhost")


def half(server, kind):
    """A connection on which a request has begun and does not end."""
    sock = socket.create_connection(server.address, timeout=30)
    claim = server.head("POST", f"{API_PREFIX}/claim", Content_Length=100)
    if kind == "after another":
        claim = claim.replace(b"100", b"2") + b"{}POST /x HTTP/1.1\r\nHost"
    sock.sendall({"head": claim[:50], "body": claim + b"{", "folded": claim.replace(b"th: ", b"th:\r\n ") + b"{"}
                 .get(kind, claim))
    return sock


@pytest.mark.parametrize("kind", ["head", "body", "folded", "after another"])
def test_requests_that_do_not_end_do_not_stop_the_others(server, kind):
    """More of them than there are threads."""
    begun = [half(server, kind) for _ in range(10)]
    try:
        if kind == "after another":
            for sock in begun:
                assert sock.recv(12) == b"HTTP/1.1 400", "the first request was whole"
        for _ in range(5):
            assert server.ask("POST", f"{API_PREFIX}/claim", CLAIM)[0] == 200
    finally:
        for sock in begun:
            sock.close()


def test_a_request_that_comes_byte_by_byte_is_answered(server):
    body = json.dumps(CLAIM).encode()
    request = server.head("POST", f"{API_PREFIX}/claim", Content_Length=len(body), Connection="close") + body
    answer = server.raw(request[n:n + 1] for n in range(len(request)))
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_request_that_takes_too_long_to_come_is_given_up(server, monkeypatch):
    from potato_training.runtime import http_arrival

    monkeypatch.setattr(http_arrival, "WITHIN_S", 0.0)
    with half(server, "head") as sock, contextlib.suppress(OSError):
        while True:
            sock.sendall(b"x")
            if select.select([sock], [], [], 0.01)[0]:
                assert sock.recv(1) == b""
                break
