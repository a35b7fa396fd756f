"""The API: every route, what it refuses, and runs that go through it to their end."""

from __future__ import annotations

import io
import json
import shutil
import signal
import tarfile

import pytest


@pytest.fixture
def site(server):
    return server()


# --- asking ----------------------------------------------------------------------------------------


def test_trainers_schemas_and_backends(server):
    entries = {"gpu": {"type": "ssh", "host": "gpu.example.org"}, "lab": {"type": "agent"},
               "cluster": {"type": "slurm", "host": "login.example.org", "remote_dir": "/shared/pt"}}
    training = {"enabled": True, "backend": "gpu", "backends": entries}
    site = server(config={"model_training": training})
    trainers = {t["name"]: t for t in site.get("api/trainers").json["trainers"]}
    assert trainers["sklearn-text"]["params_schema"]["properties"]["C"]["default"] == 10
    assert "nominal" in trainers["sklearn-text"]["kinds"]
    schemas = {s["name"]: s for s in site.get("api/schemas").json["schemas"]}
    assert schemas["sentiment"]["kind"] == "nominal"
    labels = [b["label"] for b in site.get("api/backends").json["backends"]]
    assert labels[0] == "gpu (ssh to gpu.example.org)", "the default comes first"
    assert sorted(labels[1:]) == ["cluster (slurm via login.example.org)", "lab (agent)", "local (this machine)"]


@pytest.mark.parametrize("limit", ["abc", "-1", "0", "1001", "1e3", "1.5", " 1", "٣", "99999999999999999999", "1;x"])
def test_a_limit_that_is_none(site, limit):
    from urllib.parse import quote

    answer = site.get(f"api/runs?limit={quote(limit)}")
    assert answer.status == 400
    assert answer.json["field"] == "limit"


@pytest.mark.parametrize("after", ["abc", "-1", "1.5"])
def test_an_after_that_is_none(site, after):
    run = site.start_run()
    for what in ("events", "log"):
        answer = site.get(f"api/runs/{run}/{what}?after={after}")
        assert (answer.status, answer.json["field"]) == (400, "after")


@pytest.mark.parametrize("run", ["none", "..", "%2e%2e", "..%2f..%2fconfig.yaml", "%00", "a" * 300, "%ff", "'", "last"])
def test_runs_that_are_not_there(site, run):
    for method, path in (("GET", ""), ("GET", "/events"), ("GET", "/log"), ("POST", "/cancel"), ("POST", "/keep"),
                         ("DELETE", "/predictions")):
        answer = site.ask(method, f"api/runs/{run}{path}")
        assert answer.status == 404 if run not in ("..", "%2e%2e") else answer.status in (404, 405), (path, answer.text)
        assert answer.json["error"]


def test_a_run_s_page_draws_the_learning_curve_of_its_trainer(site, study):
    from potato_training.runtime import curve_stats

    run = site.start_run()
    assert "Learning curve" not in site.get(f"runs/{run}").text
    points = [(share, 100 * share, [True] * n + [False] * (60 - n), None) for share, n in ((0.75, 42), (1.0, 58))]
    curve = {"made": 1.7e9, "schemas": {"sentiment": curve_stats.summary(points)}}
    (study.places.root / "curve.json").write_text(json.dumps({"test-quick": curve, "sklearn-text": {}}))
    page = site.get(f"runs/{run}").text
    assert "Learning curve: sentiment" in page and "more labels still pay: " in page
    assert 'aria-label="Accuracy of sentiment by labelled train items. Last: accuracy 0.9667' in page


# --- starting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"trainer": "none"}, 400, "trainer"), ({"trainer": 3}, 400, "trainer"), ({"trainer": ["x"]}, 400, "trainer"),
        ({"schemas": ["none"]}, 400, "schemas"), ({"schemas": "sentiment"}, 400, "schemas"),
        ({"schemas": [1]}, 400, "schemas"), ({"schemas": {}}, 400, "schemas"),
        ({"backend": "none"}, 409, "backend"), ({"backend": "none", "trainer": "none"}, 409, "backend"),
        ({"backend": 1}, 400, "backend"), ({"params": []}, 400, "params"), ({"params": {"C": -1}}, 400, "params"),
        ({"params": {"c": 1}}, 400, "params"), ({"params": {"C": "much"}}, 400, "params"),
        ({"trainr": "x"}, 400, "trainr"), ([1], 400, "body"), (None, 400, "body"), ("x", 400, "body"),
        (b"{", 400, "body"), (b"\xff", 400, "body"), (b"[" * 100_000, 400, "body"),
        (b'{"params":{"C":NaN}}', 400, "body"),
        (b" " * 300_000, 413, "body"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_no_run_is_started_for(site, study, body, status, field):
    data = body if isinstance(body, bytes) else json.dumps(body)
    answer = site.post("api/runs", data)
    assert (answer.status, answer.json["field"]) == (status, field), answer.text
    assert answer.json["started"] is False
    assert answer.json["error"]
    assert study.runs() == []


def test_a_body_that_is_no_json_by_its_type(site):
    assert site.post("api/runs", "trainer=x", Content_Type="text/plain").status == 415


def test_training_switched_off(server):
    site = server(config={"model_training": {"enabled": False}})
    answer = site.post("api/runs", {})
    assert answer.status == 400
    assert "switched off" in answer.json["error"]


def test_a_run_from_start_to_retract(site, study):
    study.configure(writeback={"schemas": ["sentiment"], "include_unlabeled": True, "min_confidence": 0})
    run = site.start_run(schemas=["sentiment"])
    study.ended(run)
    record = site.get(f"api/runs/{run}").json
    assert record["status"] == "succeeded"
    assert record["trigger"] == "api"
    assert record["held_out"]["sentiment"]["macro_f1"] >= 0
    assert record["facts"]["bundle"]["digest"]
    assert site.get("api/runs?limit=1").json["runs"][0]["run_id"] == run

    first = site.get(f"api/runs/{run}/events?limit=2").json
    assert len(first["events"]) == first["next"] == 2
    rest = site.get(f"api/runs/{run}/events?after=2").json
    assert first["events"] + rest["events"] == study.events(run)
    assert site.get(f"api/runs/{run}/events?after={rest['next']}").json["events"] == []

    log = site.get(f"api/runs/{run}/log").json
    assert log["text"] == study.log(run)
    assert log["over"] is True
    assert site.get(f"api/runs/{run}/log?after={log['next']}").json["text"] == ""

    published = [json.loads(line) for line in study.places.prelabels.read_text().splitlines()]
    assert published
    answer = site.ask("DELETE", f"api/runs/{run}/predictions")
    assert answer.json == {"run_id": run, "retracted": len(published)}
    assert study.places.prelabels.read_text() == ""
    assert site.ask("DELETE", f"api/runs/{run}/predictions").json["retracted"] == 0
    assert study.run(run).facts["retracted"]["rows"] == len(published)
    assert f"retracted {len(published)} prelabels" in study.log(run)


def test_the_queue_and_its_positions(site, study):
    answers = [site.post("api/runs", {"trainer": "test-slow", "params": {"steps": 600}}).json for _ in range(3)]
    assert [(a["queued"], a["position"]) for a in answers] == [(False, 0), (True, 1), (True, 2)]
    runs = [a["run_id"] for a in answers]
    study.reaches(runs[0], "running")
    status = site.get("api/status").json
    assert status["running"]["run_id"] == runs[0]
    assert [(r["run_id"], r["position"]) for r in status["queue"]] == [(runs[1], 1), (runs[2], 2)]
    assert [r["started"] is None for r in (status["running"], *status["queue"])] == [False, True, True]
    assert site.get().text.count('<td class="when"><span class="about">asked') == 2
    assert status["supervisor"] is True

    assert site.ask("DELETE", f"api/runs/{runs[0]}/predictions").status == 409, "it has not ended"
    for run in (runs[1], runs[0]):
        answer = site.post(f"api/runs/{run}/cancel")
        assert (answer.status, answer.json["wish"]) == (200, "cancel")
    study.wait_until(lambda: study.run(runs[0]).over and study.run(runs[1]).over, "the end of both")
    assert study.run(runs[1]).reason == "cancelled before it started"
    assert study.run(runs[0]).state == "cancelled"
    refused = site.post(f"api/runs/{runs[0]}/cancel")
    assert (refused.status, refused.json["run_status"]) == (409, "cancelled")
    study.reaches(runs[2], "running")
    study.wait_until(lambda: (site.get(f"api/runs/{runs[2]}").json["progress"] or {}).get("current"), "progress")
    assert site.post(f"api/runs/{runs[2]}/keep").json["wish"] == "keep"
    assert study.ended(runs[2]).state == "succeeded"
    assert site.get(f"api/runs/{runs[2]}").json["facts"]["result"]["kept"] is True


def test_cancelling_tells_until_when(site, study):
    run = site.start_run("test-stubborn")
    study.wait_until(lambda: "deaf" in study.log(run), "a worker that hears nothing")
    site.post(f"api/runs/{run}/cancel")
    study.wait_until(lambda: site.get(f"api/runs/{run}").json["cancel_until"], "a time at which it ends")
    assert study.ended(run).state == "cancelled"


def test_check(site):
    answer = site.post("api/backends/local/check", {"trainer": "sklearn-text"})
    assert answer.status == 200
    assert answer.json["ok"] is True
    assert answer.json["lines"][0].startswith("local: this machine, ")
    assert site.post("api/backends/none/check").status == 404
    refused = site.post("api/backends/local/check", {"trainer": "none"})
    assert (refused.status, refused.json["field"]) == (400, "trainer")
    assert site.post("api/backends/local/check", {"trainer": 1}).json["field"] == "trainer"


# --- files -----------------------------------------------------------------------------------------


def test_model_files(site, study):
    run = site.start_run()
    study.ended(run)
    saved = study.places.run_dir(run) / "artifacts"
    one = site.get(f"runs/{run}/artifacts/sentiment/shares.json")
    assert one.data == (saved / "sentiment" / "shares.json").read_bytes()
    assert one.headers["Content-Disposition"].startswith("attachment;")
    assert one.headers["Content-Type"] == "application/octet-stream"
    everything = site.get(f"runs/{run}/artifacts.tar")
    with tarfile.open(fileobj=io.BytesIO(everything.data)) as archive:
        names = {m.name: archive.extractfile(m).read() for m in archive}
    assert names == {f"{run}/{p.relative_to(saved)}": p.read_bytes() for p in saved.rglob("*") if p.is_file()}


def test_no_name_leads_out_of_the_model_files(site, study):
    run = site.start_run()
    study.ended(run)
    saved = study.places.run_dir(run) / "artifacts"
    (saved / "link").symlink_to("/etc/passwd")
    (saved / "up").symlink_to("..")
    for name in ("link", "up/run.log", "../run.log", "..%2frun.log", "%2e%2e/run.log", "/etc/passwd", "%2fetc%2fpasswd",
                 "sentiment", "sentiment/../../run.log", "sentiment/shares.json/", "sentiment//shares.json", "%00"):
        answer = site.get(f"runs/{run}/artifacts/{name}")
        assert answer.status in (404, 308), name
        assert b"root:" not in answer.data
    with tarfile.open(fileobj=io.BytesIO(site.get(f"runs/{run}/artifacts.tar").data)) as archive:
        assert not [m for m in archive if not m.isfile() or "link" in m.name]


# --- the server's own life ---------------------------------------------------------------------------


def test_a_config_with_errors_starts_no_server(study):
    study.config.write_text(study.config.read_text().replace("enabled: true", "enabled: perhaps"))
    done = study.potato("training", "serve", "-p", "0")
    assert done.returncode == 1
    assert "model_training.enabled" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Training page" not in done.stdout


def test_warnings_are_told_and_a_later_mistake_closes_nothing(server, study):
    site = server(config={"model_training": {"enabled": True, "backends": {
        "gpu": {"type": "ssh", "host": "h", "env": {"API_TOKEN": "x"}}}}})
    good = study.config.read_text()
    run = site.start_run()
    study.ended(run)
    study.config.write_text(good.replace("enabled: true", "enabled: perhaps"))
    assert site.get("api/status").json["config_errors"][0].startswith("line ")
    assert site.get(f"api/runs/{run}").status == 200
    page = site.get("").text
    assert "The config has errors now" in page
    assert "model_training.enabled" in page
    assert site.post("api/runs", {}).status == 503
    study.config.write_text(good)
    assert site.get("api/status").json["config_errors"] == []
    assert site.stop() == 0
    assert "API_TOKEN" in site.printed, "the warning about a secret in env"


def test_a_port_that_is_taken(site, study):
    done = study.potato("training", "serve", "-p", str(site.port))
    assert done.returncode == 1
    assert f"port {site.port} is taken" in done.stderr
    assert f"(process {site.process.pid})" in done.stderr
    study.config.write_text(study.config.read_text() + f"port: {site.port}\n")
    assert "to Potato itself" in study.potato("training", "serve", "-p", str(site.port)).stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_stopping_a_server_stops_no_run(site, study, number, code):
    run = site.start_run("test-slow", steps=30)
    study.reaches(run, "running")
    assert site.stop(number) == code
    assert "runs go on" in site.printed
    assert "Traceback" not in site.printed
    assert study.ended(run).state == "succeeded"


@pytest.mark.parametrize("state", ["queued", "building", "running", "cancelling", "evaluating"])
def test_a_server_killed_in_any_state_is_started_again(server, study, state):
    site = server()
    if state == "queued":
        site.start_run("test-slow", steps=20)
    run = site.start_run("test-stubborn" if state == "cancelling" else "test-slow",
                         **({} if state == "cancelling" else {"steps": 20}))
    if state == "cancelling":
        study.wait_until(lambda: "deaf" in study.log(run), "a worker that hears nothing")
        site.post(f"api/runs/{run}/cancel")
    study.wait_until(lambda: state in study.run(run).facts["timings"], state)
    site.process.kill()
    assert site.ended() == -signal.SIGKILL
    again = server()
    assert again.get(f"api/runs/{run}").status == 200
    expected = "cancelled" if state == "cancelling" else "succeeded"
    assert study.ended(run).state == expected
    assert again.get(f"api/runs/{run}").json["status"] == expected
    study.nothing_is_left()


def test_a_supervisor_that_was_killed_comes_back(site, study):
    run = site.start_run("test-slow", steps=40)
    study.reaches(run, "running")
    import os

    os.kill(study.supervisor(), signal.SIGKILL)
    assert study.ended(run).state == "succeeded"


def test_metrics(site, study):
    run = site.start_run()
    study.ended(run)
    text = site.get("/metrics").text
    assert 'potato_training_runs{state="succeeded"} 1' in text
    assert "potato_training_queue 0" in text
    assert 'potato_training_last_held_out_macro_f1{schema="sentiment",split="' in text
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ", "potato_training_"))


METHODS = (
    ("DELETE", "api/status", "GET"), ("GET", "api/runs/x/cancel", "POST"), ("PUT", "api/runs", "POST"),
    ("POST", "", "GET"), ("PATCH", "/metrics", "GET"), ("POST", "/", "GET"), ("GET", "/api/training/v1/claim", "POST"),
)


def test_a_wrong_method_is_told_the_right_ones(site):
    for method, path, allowed in METHODS:
        answer = site.ask(method, path, **site.own)
        assert answer.status == 405, path
        assert allowed in answer.headers["Allow"].split(", "), path


def test_a_training_folder_that_vanishes_is_named_and_the_next_run_begins_anew(site, study):
    study.ended(site.start_run())
    study.wait_until(lambda: not study.processes(), "the end of the supervisor")
    shutil.rmtree(study.places.root)
    for path in ("api/status", "api/runs"):
        answer = site.get(path)
        assert answer.status == 503 and answer.json["error"] == f"{study.places.root} is gone", answer.text
    assert "training is gone" in site.get().text
    run = site.start_run()
    assert study.ended(run).state == "succeeded", study.log(run)
    for _ in range(20):  # whichever thread answers
        assert [one["run_id"] for one in site.get("api/runs").json["runs"]] == [run]
