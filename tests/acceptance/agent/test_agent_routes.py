"""The routes over real sockets, asked by somebody who is not our agent."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import socket
from urllib.parse import quote, urlsplit

import pytest
from potato_training.runtime.protocol_types import Principal
from potato_training.worker.protocol import (
    API_PREFIX,
    MAX_BATCH_BYTES,
    MAX_EVENT_BYTES,
    MAX_MESSAGE_BYTES,
)

JOB = f"{API_PREFIX}/jobs/run-1"
ROUTES = [
    ("POST", f"{API_PREFIX}/claim"), ("GET", f"{JOB}/bundle"), ("POST", f"{JOB}/events"),
    ("PUT", f"{JOB}/predictions"), ("POST", f"{JOB}/result"),
]


@pytest.fixture
def server(bench, tcp_server):
    """``server.ask(method, path, body, ...)`` gives (status, headers, body)."""
    bench.add_job([])
    url = urlsplit(tcp_server(bench.intake))
    server = Server(bench, (url.hostname, url.port))
    yield server
    server.connection.close()


class Server:
    def __init__(self, bench, address):
        self.bench, self.intake, self.job = bench, bench.intake, bench.job
        self.address = address
        self.connection = http.client.HTTPConnection(*address, timeout=30)

    def ask(self, method, path, body=None, token="", headers=None, **more):
        token = self.bench.token if token == "" else token
        everything = {} if token is None else {"Authorization": f"Bearer {token}"}
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        self.connection.request(method, path, body, {**everything, **(headers or {})}, **more)
        answer = self.connection.getresponse()
        text = answer.read()
        kept = {name.lower(): value for name, value in answer.getheaders() if name != "Date"}
        return answer.status, kept, json.loads(text) if text.startswith(b"{") else text

    def raw(self, data, *, answers=True):
        """Sends bytes as they are on a connection of their own; the answer until the server closes it."""
        with socket.create_connection(self.address, timeout=30) as sock:
            for block in data:
                try:
                    sock.sendall(block)
                except OSError:
                    break
            answer = b""
            while block := sock.recv(65536):
                answer += block
        return answer

    def head(self, method, path, **headers):
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.bench.token}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def digest(data):
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


# --- who ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_wrong_token_gets_the_same_answer(server, method, path):
    token = server.bench.token
    wrong = [
        None, "wrong", token[:-1], token + "x", token.swapcase(), "x" * 600, "\xff\xfe".encode().decode("latin-1"),
    ]
    answers = [server.ask(method, path, b"{}", token=value) for value in wrong]
    answers.append(server.ask(method, path, b"{}", token=None, headers={"Authorization": f"Basic {token}"}))
    answers.append(server.ask(method, path, b"{}", token=None, headers={"Authorization": token}))
    assert {json.dumps(answer) for answer in answers} == {json.dumps(answers[0])}
    status, headers, body = answers[0]
    assert (status, body) == (401, {"error": "unauthorized"})
    assert headers["www-authenticate"] == "Bearer"


def test_no_token_is_looked_up_like_a_wrong_one(server):
    """The same work for both: the intake is asked in either case."""
    asked = []
    real = server.intake.authenticate
    server.intake.authenticate = lambda token: (asked.append(token), real(token))[1]
    server.ask("POST", f"{API_PREFIX}/claim", b"{}", token=None)
    server.ask("POST", f"{API_PREFIX}/claim", b"{}", token="wrong")
    assert asked == [None, "wrong"]


@pytest.mark.parametrize(("method", "path"), ROUTES[1:])
def test_anothers_job_looks_like_no_job(server, method, path):
    server.intake.tokens["other"] = Principal("backend", "other")
    body = {"stream": "worker", "seq": 0, "events": [], "exit_code": 0}
    headers = {"Content-Digest": digest(b"")}
    theirs = server.ask(method, path, body, token="other", headers=headers)
    none = server.ask(method, path.replace("run-1", "run-2"), body, headers=headers)
    assert theirs == none
    assert theirs[0] == 404


@pytest.mark.parametrize("name", ["..", "a b", "%2e%2e", "..%2f..%2fetc", "x" * 101, "-x", "é"])
def test_a_run_id_that_is_no_plain_name_is_no_job(server, name):
    asked = []
    server.intake.before = lambda method, run_id: asked.append(run_id)
    path = f"{API_PREFIX}/jobs/{name if '%' in name else quote(name)}/bundle"
    assert server.ask("GET", path)[0] == 404
    assert asked == []


def test_a_job_that_is_over_takes_only_the_result(server):
    server.job.over = True
    body = {"stream": "worker", "seq": 0, "events": [], "exit_code": 0}
    headers = {"Content-Digest": digest(b"")}
    assert [server.ask(m, p, body, headers=headers)[0] for m, p in ROUTES[1:]] == [410, 410, 410, 200]


# --- claim, events, result --------------------------------------------------------------------------


CLAIM = {"agent_id": "a", "hostname": "h"}
DEEP = json.loads("[" * 40 + "]" * 40)


def test_claim_gives_the_job_once_and_then_nothing_for_a_while(server):
    assert server.ask("POST", f"{API_PREFIX}/claim", CLAIM)[2]["run_id"] == "run-1"
    assert server.ask("POST", f"{API_PREFIX}/claim", CLAIM)[2]["run_id"] == "run-1"  # the answer was lost
    status, headers, body = server.ask("POST", f"{API_PREFIX}/claim", {**CLAIM, "agent_id": "b"})
    assert (status, headers["retry-after"], body) == (204, "7", b"")


@pytest.mark.parametrize(("path", "body", "field"), [
    ("claim", {"hostname": "h"}, "agent_id"),
    ("claim", {"agent_id": "", "hostname": "h"}, "agent_id"),
    ("claim", {"agent_id": 7, "hostname": "h"}, "agent_id"),
    ("claim", {"agent_id": "a" * 129, "hostname": "h"}, "agent_id"),
    ("claim", {"agent_id": "a\n", "hostname": "h"}, "agent_id"),
    ("claim", {"agent_id": "a", "hostname": None}, "hostname"),
    ("claim", {**CLAIM, "python": []}, "python"),
    ("claim", {**CLAIM, "gpus": {}}, "gpus"),
    ("claim", {**CLAIM, "gpus": [1] * 65}, "gpus"),
    ("claim", b"", "body"),
    ("claim", b"[]", "body"),
    ("claim", b"{", "body"),
    ("claim", b"\xff", "body"),
    ("claim", b'{"a":' * 40_000 + b"1", "body"),
    ("claim", b'{"a":' + b"9" * 5000 + b"}", "body"),
    ("jobs/run-1/events", {"seq": 0, "events": []}, "stream"),
    ("jobs/run-1/events", {"stream": "other", "seq": 0, "events": []}, "stream"),
    ("jobs/run-1/events", {"stream": [], "seq": 0, "events": []}, "stream"),
    ("jobs/run-1/events", {"stream": "worker", "events": []}, "seq"),
    ("jobs/run-1/events", {"stream": "worker", "seq": -1, "events": []}, "seq"),
    ("jobs/run-1/events", {"stream": "worker", "seq": True, "events": []}, "seq"),
    ("jobs/run-1/events", {"stream": "worker", "seq": 1.0, "events": []}, "seq"),
    ("jobs/run-1/events", {"stream": "worker", "seq": 1 << 60, "events": []}, "seq"),
    ("jobs/run-1/events", {"stream": "worker", "seq": 0}, "events"),
    ("jobs/run-1/events", {"stream": "worker", "seq": 0, "events": {}}, "events"),
    ("jobs/run-1/events", {"stream": "worker", "seq": 0, "events": [{"event": "log"}, 1]}, "events[1]"),
    ("jobs/run-1/events", {"stream": "worker", "seq": 0, "events": [{"event": 1}]}, "events[0].event"),
    ("jobs/run-1/events", {"stream": "worker", "seq": 0, "events": [{"event": "log", "msg": DEEP}]}, "events[0]"),
    ("claim", {**CLAIM, "gpus": [DEEP]}, "gpus"),
    ("jobs/run-1/result", {}, "exit_code"),
    ("jobs/run-1/result", {"exit_code": "0"}, "exit_code"),
    ("jobs/run-1/result", {"exit_code": True}, "exit_code"),
    ("jobs/run-1/result", {"exit_code": 256}, "exit_code"),
    ("jobs/run-1/result", {"exit_code": 0, "reason": 1}, "reason"),
    ("jobs/run-1/result", {"exit_code": 0, "reason": "x" * 4097}, "reason"),
    ("jobs/run-1/result", {"exit_code": 0, "artifact_uri": {}}, "artifact_uri"),
    ("jobs/run-1/result", {"exit_code": 0, "software": []}, "software"),
    ("jobs/run-1/result", {"exit_code": 0, "software": {"a": 1}}, "software"),
    ("jobs/run-1/result", {"exit_code": 0, "software": {str(n): "" for n in range(201)}}, "software"),
])
def test_a_bad_body_is_400_and_names_the_field(server, path, body, field):
    status, _, answer = server.ask("POST", f"{API_PREFIX}/{path}", body)
    assert (status, answer["field"]) == (400, field)
    assert answer["error"].startswith(field)
    assert server.job.results == [] and server.job.claims == []


def events(n=1, **fields):
    return [{"event": "log", "msg": str(i), **fields} for i in range(n)]


def test_a_repeated_batch_adds_nothing_and_a_gap_is_409(server):
    def post(seq, batch):
        return server.ask("POST", f"{JOB}/events", {"stream": "worker", "seq": seq, "events": batch})

    assert post(0, events(3))[2] == {"next_seq": 3, "cancel": False, "stop_and_keep": False}
    assert post(0, events(3))[2]["next_seq"] == 3
    assert post(1, events(3))[2]["next_seq"] == 4
    status, _, body = post(6, events(1))
    assert (status, body["next_seq"]) == (409, 4)
    assert post(4, [])[2]["next_seq"] == 4
    server.job.cancel = True
    assert post(4, [])[2]["cancel"] is True
    assert len(server.job.worker_events) == 4


def test_more_than_ten_thousand_events_are_413(server):
    body = {"stream": "worker", "seq": 0, "events": events(10_001)}
    assert server.ask("POST", f"{JOB}/events", body)[0] == 413
    body["events"].pop()
    assert server.ask("POST", f"{JOB}/events", body)[2]["next_seq"] == 10_000


def test_a_long_event_is_cut_and_marked(server):
    long = events(1, msg="x" * 100_000)
    body = {"stream": "worker", "seq": 0, "events": [*long, *events(1)]}
    assert server.ask("POST", f"{JOB}/events", body)[0] == 200
    cut, whole = server.job.worker_events
    assert cut["cut"] is True and len(json.dumps(cut)) < MAX_EVENT_BYTES
    assert "cut" not in whole


def test_what_no_file_would_take_is_made_whole(server):
    body = b'{"stream":"worker","seq":0,"events":[{"event":"log","msg":"a\\ud800b","v":NaN}]}'
    assert server.ask("POST", f"{JOB}/events", body)[0] == 200
    event = server.job.worker_events[0]
    assert event["v"] is None
    assert event["msg"].encode() == "a\ufffdb".encode()


def test_a_repeated_result_gets_the_same_answer(server):
    body = {"exit_code": None, "reason": "<script>", "artifact_uri": "../../etc", "unknown": 1}
    assert server.ask("POST", f"{JOB}/result", body) == server.ask("POST", f"{JOB}/result", body)
    assert server.job.results == [
        {"exit_code": None, "reason": "<script>", "artifact_uri": "../../etc", "software": {}}
    ]


def test_what_is_not_there_is_said_in_json(server):
    assert server.ask("GET", f"{API_PREFIX}/nothing")[2] == {"error": "not found"}
    status, headers, _ = server.ask("GET", f"{API_PREFIX}/claim")
    assert (status, headers["allow"]) == (405, "OPTIONS, POST")
    assert server.ask("GET", "/")[2] == {"error": "not found"}


def test_a_fault_of_ours_is_500_without_its_words(server):
    def broken(method, run_id):
        raise RuntimeError("secret words")

    server.intake.before = broken
    assert server.ask("POST", f"{API_PREFIX}/claim", CLAIM)[::2] == (500, {"error": "internal error"})


# --- bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "limit"), [
    ("POST", f"{API_PREFIX}/claim", MAX_MESSAGE_BYTES),
    ("POST", f"{JOB}/events", MAX_BATCH_BYTES),
    ("POST", f"{JOB}/result", MAX_MESSAGE_BYTES),
    ("PUT", f"{JOB}/predictions", 1000),
])
def test_a_length_above_the_limit_is_413_before_a_byte_of_it(server, method, path, limit):
    server.job.limit_bytes = 1000
    head = server.head(method, path, Content_Length=limit + 1, Content_Digest=digest(b""))
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
        "PUT", f"{JOB}/predictions", Transfer_Encoding="chunked", Content_Digest=digest(data), Connection="close"
    )
    answer = server.raw([head, chunks(data[:1], data[1:50_000], data[50_000:])])
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert server.job.predictions == data


def test_too_many_predictions_in_chunks_are_413_at_the_byte(server):
    server.job.limit_bytes = 100_000
    head = server.head("PUT", f"{JOB}/predictions", Transfer_Encoding="chunked", Content_Digest=digest(b""))
    endless = (b"%x\r\n%s\r\n" % (1000, b"x" * 1000) for _ in range(50_000))
    answer = server.raw([head, *endless])
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert sum(map(len, server.intake.sinks[0].blocks)) == 100_001
    assert server.intake.sinks[0].aborted
    assert server.job.predictions is None


def test_a_chunk_that_claims_to_be_huge_is_taken_as_it_comes(server):
    server.job.limit_bytes = 5000
    head = server.head("PUT", f"{JOB}/predictions", Transfer_Encoding="chunked", Content_Digest=digest(b""))
    answer = server.raw([head, b"ffffffffff\r\n", b"x" * 6000])
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("framing", [
    b"zz\r\nab\r\n", b"-1\r\n", b"\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"1" * 5000, b"5\r\nab",
])
def test_broken_framing_is_no_upload(server, framing):
    head = server.head("PUT", f"{JOB}/predictions", Transfer_Encoding="chunked", Content_Digest=digest(b"ab"))
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
    head = server.head("PUT", f"{JOB}/predictions", Content_Length=10, Content_Digest=digest(data))
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
    assert server.ask("PUT", f"{JOB}/predictions", b"old", headers={"Content-Digest": digest(b"old")})[0] == 200
    assert server.ask("PUT", f"{JOB}/predictions", b"new", headers={"Content-Digest": digest(b"old")})[0] == 400
    assert server.job.predictions == b"old"


def test_a_connection_is_kept_after_a_refusal_of_something_small(server):
    for _ in range(3):
        assert server.ask("POST", f"{API_PREFIX}/claim", b"x" * 1000, token="wrong")[0] == 401
        server_socket = server.connection.sock
        assert server.ask("POST", f"{API_PREFIX}/claim", CLAIM)[0] == 200
        assert server.connection.sock is server_socket


def test_a_compressed_body_is_not_taken(server):
    status, _, _ = server.ask("POST", f"{API_PREFIX}/claim", b"x", headers={"Content-Encoding": "gzip"})
    assert status == 415


def test_a_body_that_trickles_is_given_up(server, monkeypatch):
    from potato_training.runtime import agent_bodies

    monkeypatch.setattr(agent_bodies.read_json, "__kwdefaults__", {"seconds": 0.0})
    head = server.head("POST", f"{API_PREFIX}/claim", Content_Length=100)
    with socket.create_connection(server.address, timeout=30) as sock:
        sock.sendall(head + b"{")
        assert sock.recv(65536).startswith(b"HTTP/1.1 408 ")


# --- the bundle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "if_range", "status", "part"), [
    (None, None, 200, (0, None)),
    ("bytes=0-", None, 206, (0, None)),
    ("bytes=5-", "etag", 206, (5, None)),
    ("bytes=5-9", "etag", 206, (5, 10)),
    ("bytes=5-99999999", "etag", 206, (5, None)),
    ("bytes=-7", None, 206, (-7, None)),
    ("bytes=5-", '"other"', 200, (0, None)),
    ("bytes=5-", "W/etag", 200, (0, None)),
    ("bytes=5-", "Sat, 01 Jan 2028 00:00:00 GMT", 200, (0, None)),
    ("bytes=1-2,5-6", None, 200, (0, None)),
    ("bytes=9-5", None, 200, (0, None)),
    ("pages=1-2", None, 200, (0, None)),
    ("bytes=-", None, 200, (0, None)),
    ("bytes=99999999-", None, 416, None),
    ("bytes=-0", None, 416, None),
])
def test_parts_of_the_bundle(server, wanted, if_range, status, part):
    data = server.job.bundle.read_bytes()
    etag = '"{}"'.format(server.job.message["bundle"]["etag"])
    headers = {} if wanted is None else {"Range": wanted}
    if if_range:
        headers["If-Range"] = if_range.replace("etag", etag)
    found, answer_headers, body = server.ask("GET", f"{JOB}/bundle", headers=headers)
    whole = wanted == "bytes=0-"  # all of it is no part
    assert found == (200 if whole else status)
    assert answer_headers["accept-ranges"] == "bytes"
    assert answer_headers["etag"] == etag
    if part is None:
        assert answer_headers["content-range"] == f"bytes */{len(data)}"
        return
    expected = data[part[0]:part[1]]
    assert body == expected
    if found == 206:
        start = data.index(expected) if part[0] < 0 else part[0]
        assert answer_headers["content-range"] == f"bytes {start}-{start + len(expected) - 1}/{len(data)}"


def test_a_bundle_that_is_gone_is_no_job(server):
    server.job.bundle.rename(server.job.bundle.with_name("elsewhere"))
    server.intake.bundle_file = lambda job: type("B", (), {"path": job.bundle, "size": 5, "etag": "e"})
    assert server.ask("GET", f"{JOB}/bundle")[0] == 404


# --- the listener -------------------------------------------------------------------------------------


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
