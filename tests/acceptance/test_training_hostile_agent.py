"""An agent with a good token and bad intentions, against a real server: what it says is data, and never believed."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re

import pytest

TO_STATION = ("--backend", "station")
KEY = "the key of the tests"
HTML = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>"
PATHS = ["../../../../evil", "/tmp/evil-of-an-agent", "..\\evil", "evil\0", "~/evil", "file:///etc/passwd"]


class Hostile:
    """A server, a run that waits for an agent, and somebody who has the token."""

    def __init__(self, study):
        self.study = study
        study.configure(grace_seconds=1, backends={"station": {"type": "agent"}, "other": {"type": "agent"}})
        study.config.write_text(study.config.read_text().replace("change-me", KEY))
        self.token = self.register("station")
        self.process = study.start("training", "serve", "-p", "0")
        line = self.process.stdout.readline()
        while line and "Training page:" not in line:
            line = self.process.stdout.readline()
        self.port = int(re.search(r":(\d+)/", line)[1])

    def register(self, backend):
        printed = self.study.potato("training", "register", backend, check=True).stdout
        return re.search(r"^  ([A-Za-z0-9_-]{40,})$", printed, re.MULTILINE)[1]

    def ask(self, method, path, body=None, *, token=None, headers=()):
        """(status, text); ``path`` is below the protocol's, or whole."""
        sent = {"Authorization": f"Bearer {token or self.token}", "X-API-Key": KEY, **dict(headers)}
        path = path if path.startswith("/") else f"/api/training/v1/{path}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body), sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        finally:
            connection.close()

    def job(self, **claim):
        """Starts a run and claims it; its id."""
        self.command, run_id = self.study.train("test-quick", *TO_STATION)
        self.study.wait_until(lambda: self.study.run(run_id).facts.get("claimable"), "the bundle")
        status, text = self.ask("POST", "claim", {"agent_id": "a", "hostname": "h", **claim})
        assert (status, json.loads(text)["run_id"]) == (200, run_id)
        self.sent = {"worker": 0, "agent": 0}
        return run_id

    def say(self, run_id, *events, stream="worker"):
        batch = [{"v": 1, "t": 1, "attempt": 1, **e} for e in events]
        body = {"stream": stream, "seq": self.sent[stream], "events": batch}
        status, text = self.ask("POST", f"jobs/{run_id}/events", body)
        if status == 200:
            self.sent[stream] = json.loads(text)["next_seq"]
        return status

    def upload(self, run_id, data, **more):
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        return self.ask("PUT", f"jobs/{run_id}/predictions", data, headers={"Content-Digest": f"sha-256=:{digest}:"})[0]

    def report(self, run_id, **body):
        return self.ask("POST", f"jobs/{run_id}/result", {"exit_code": 0, **body})

    def end(self, run_id):
        self.study.finish(self.command)
        return self.study.ended(run_id)


@pytest.fixture
def hostile(study):
    return Hostile(study)


def result(data, **more):
    return {"event": "result", "status": "succeeded", "predictions_sha256": hashlib.sha256(data).hexdigest(), **more}


def row(item, label="positive", **more):
    return json.dumps({"instance_id": item, "schema_name": "sentiment", "payload": label, "confidence": 0.9,
                       "split": "unlabeled", "scores": {label: 0.9}, **more})


def test_html_in_every_field_stays_text(hostile):
    run_id = hostile.job(agent_id=HTML, hostname=HTML, agent_version=HTML, python=HTML, gpus=[{"name": HTML}, HTML])
    strange = {"step": HTML, "host": HTML, "python": HTML, "device": HTML, "node": HTML, "scheduler_job": HTML,
               "software": {HTML: HTML}, "gpu": [{"name": HTML, "uuid": HTML}], "threads": HTML, "pid": HTML}
    assert hostile.say(
        run_id, {"event": "status", "state": "running", **strange}, {"event": HTML[:60], "msg": HTML},
        {"event": "progress", "phase": HTML, "current": 1, "total": 2, "eta_s": HTML},
        {"event": "metric", "split": HTML, "name": HTML, "schema": HTML, "value": 1},
        {"event": "log", "level": HTML, "msg": HTML}, {"event": "log", "level": "warning", "msg": HTML},
        {"event": "artifact", "path": HTML, "bytes": HTML}, {"event": "error", "code": HTML, "message": HTML},
        result(b"", model_version={HTML: HTML}, label_order={HTML: [HTML]}, n_predictions=HTML,
               metrics={HTML: {"val": {"n": 9, "accuracy": HTML, "per_label": {HTML: {"f1": 1}}}}, "sentiment": HTML}),
    ) == 200
    pages = ["/admin/training", f"/admin/training/runs/{run_id}"]
    seen = [hostile.ask("GET", page) for page in pages]
    hostile.say(run_id, {"event": "log", "level": HTML, "msg": HTML}, stream="agent")
    hostile.report(run_id, exit_code=1, reason=HTML, artifact_uri="javascript:alert(1)", software={HTML: HTML})
    assert hostile.end(run_id).state == "failed"
    seen += [hostile.ask("GET", page) for page in pages]
    for status, text in seen:
        assert status == 200
        assert "<script>alert" not in text and "<img src=x" not in text and "\"'><b>" not in text
        assert not re.search(r"""(href|src)=["']?\s*javascript:""", text)
    assert "&lt;script&gt;alert(1)" in seen[-1][1], "it is shown, as text"
    for command in (("runs",), ("show", run_id), ("logs", run_id)):
        assert hostile.study.potato("training", *command).returncode == 0


def test_no_field_is_a_path(hostile):
    before = set(hostile.study.root.parent.rglob("*"))
    for path in PATHS:
        assert hostile.ask("GET", f"jobs/{path.replace(chr(0), '%00')}/bundle")[0] in (400, 404, 308)
    run_id = hostile.job(agent_id="../../evil", hostname="/tmp/evil-of-an-agent", python="/tmp/evil-of-an-agent")
    data = "".join(row(path) + "\n" for path in PATHS).encode()
    for path in PATHS:
        assert hostile.say(run_id, {"event": "artifact", "path": path, "bytes": 5},
                           {"event": "status", "state": path, "step": path, "scheduler_job": path, "node": path}) == 200
    hostile.say(run_id, result(data, artifacts={"sentiment": "../../evil"}, model_version={"../../evil": "x"}))
    assert hostile.upload(run_id, data) == 200
    assert hostile.report(run_id, artifact_uri="file:///etc/passwd")[0] == 200
    hostile.end(run_id)
    fresh = set(hostile.study.root.parent.rglob("*")) - before
    assert not [path for path in fresh if "evil" in path.name]
    assert all(path.is_relative_to(hostile.study.root / "training") for path in fresh)
    for path in ("../../config.yaml", "%2e%2e%2fconfig.yaml", "/etc/passwd"):
        status, text = hostile.ask("GET", f"/admin/training/api/runs/{run_id}/artifacts/{path}")
        assert status in (404, 400, 308) and "root:" not in text and "annotation_task_name" not in text


GOOD = (row("r001") + "\n").encode()


@pytest.mark.parametrize(("events", "uploaded", "code"), [
    pytest.param([], None, 0, id="code 0 and nothing else"),
    pytest.param([result(GOOD)], None, 0, id="predictions that never came"),
    pytest.param([result(b"others")], GOOD, 0, id="other predictions than it said"),
    pytest.param([result(GOOD)], GOOD, 1, id="well, but with code 1"),
    pytest.param([result(GOOD)], GOOD, None, id="well, but nobody knows the code"),
    pytest.param([{**result(GOOD), "predictions_sha256": None}], GOOD, 0, id="no digest"),
    pytest.param([{**result(GOOD), "status": "SUCCEEDED"}], GOOD, 0, id="a status that is none"),
    pytest.param([], GOOD, 0, id="predictions without a result"),
])
def test_a_liar_does_not_succeed(hostile, events, uploaded, code):
    run_id = hostile.job()
    hostile.say(run_id, {"event": "status", "state": "running", "step": "x"}, *events)
    if uploaded is not None:
        assert hostile.upload(run_id, uploaded) == 200
    hostile.report(run_id, exit_code=code)
    assert hostile.end(run_id).state == "failed"
    assert not hostile.study.places.prelabels.exists() or not hostile.study.places.prelabels.read_text()


@pytest.mark.parametrize("data", [
    b"\xff\xfe\x00", b"{}\n", b"[]\n1\nnull\n", b'{"instance_id":' * 10_000, row("r001", HTML).encode(),
    row("r001", confidence=1e308, scores={"positive": -1}).encode(), row("r001", payload=["positive"]).encode(),
    row("nowhere").encode(), (row("r001") + "\n").encode() * 50,
], ids=lambda data: data[:12].decode("latin-1"))
def test_predictions_that_are_none_reach_no_annotator(hostile, data):
    """Saved as they came, since the digest is right; published only as far as they make sense."""
    run_id = hostile.job()
    hostile.say(run_id, {"event": "status", "state": "running", "step": "x"}, result(data, n_predictions=10**12))
    assert hostile.upload(run_id, data) == 200
    hostile.report(run_id)
    run = hostile.end(run_id)
    assert run.over
    path = hostile.study.places.prelabels
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        assert "<script" not in line and "nowhere" not in line
        json.loads(line)
    assert hostile.ask("GET", f"/admin/training/runs/{run_id}")[0] == 200


def test_a_stolen_token_after_the_end_and_after_a_new_one(hostile):
    run_id = hostile.job()
    other = hostile.register("other")
    assert hostile.ask("GET", f"jobs/{run_id}/bundle", token=other)[0] == 404
    thief = {"agent_id": "thief", "hostname": "t"}
    assert hostile.ask("POST", "claim", thief)[0] == 204, "the job is handed out once"
    hostile.say(run_id, {"event": "status", "state": "running", "step": "x"}, result(GOOD))
    hostile.upload(run_id, GOOD)
    first = hostile.report(run_id, reason="finished", artifact_uri="file://h/a")
    run = hostile.end(run_id)
    assert run.state == "succeeded"
    saved = (hostile.study.places.run_dir(run_id) / "predictions.jsonl").read_bytes()
    assert hostile.say(run_id, {"event": "error", "code": "x", "message": "late"}) == 410
    assert hostile.upload(run_id, b"late") == 410
    assert hostile.ask("GET", f"jobs/{run_id}/bundle")[0] == 410
    assert hostile.report(run_id, exit_code=9, reason="late", artifact_uri="file://evil") == first
    after = hostile.study.run(run_id)
    assert (after.state, after.facts["report"]) == (run.state, run.facts["report"])
    assert (hostile.study.places.run_dir(run_id) / "predictions.jsonl").read_bytes() == saved
    hostile.register("station")
    for method, path in (("POST", "claim"), ("GET", f"jobs/{run_id}/bundle"), ("POST", f"jobs/{run_id}/result")):
        assert hostile.ask(method, path, thief)[0] == 401, "a new token ends the old one at once"
