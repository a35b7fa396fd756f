"""The routes over real sockets, asked by somebody who is not our agent: who he is, and what he says."""

from __future__ import annotations

import json
from urllib.parse import quote

import flask
import pytest
from potato_training.runtime.agent_routes import make_blueprint
from potato_training.runtime.protocol_types import Principal
from potato_training.worker.protocol import API_PREFIX, MAX_EVENT_BYTES

JOB = f"{API_PREFIX}/jobs/run-1"
ROUTES = [
    ("POST", f"{API_PREFIX}/claim"), ("GET", f"{JOB}/bundle"), ("POST", f"{JOB}/events"),
    ("PUT", f"{JOB}/predictions"), ("POST", f"{JOB}/result"),
]


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
    headers = {"Content-Digest": server.digest(b"")}
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
    headers = {"Content-Digest": server.digest(b"")}
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


def test_in_a_host_that_answers_in_html_too(bench):
    host = flask.Flask("host")
    host.register_blueprint(make_blueprint(bench.intake))
    browser = host.test_client()
    for method, path, status in (("GET", "/nothing", 404), ("GET", "/claim", 405), ("POST", "//claim", 404),
                                 ("POST", "/claim/", 404)):
        answer = browser.open(API_PREFIX + path, method=method)
        assert (answer.status_code, answer.is_json) == (status, True), (method, path, answer.text)
    assert not browser.get("/api/nothing").is_json, "that is the host's"


def test_a_fault_of_ours_is_500_without_its_words(server):
    def broken(method, run_id):
        raise RuntimeError("secret words")

    server.intake.before = broken
    assert server.ask("POST", f"{API_PREFIX}/claim", CLAIM)[::2] == (500, {"error": "internal error"})
