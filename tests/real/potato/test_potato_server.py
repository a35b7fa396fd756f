"""Inside the released Potato: its page is ours, runs start there, and predictions become prelabels of live items."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

SLOW = {"steps": 6000, "step_seconds": 0.1}  #: longer than any restart of Potato; always cancelled


def free_items(study):
    """Items that nobody has labelled, in the order of the data file."""
    items = [row["id"] for row in json.loads((study.root / "data" / "reviews.json").read_text())]
    labelled = set()
    for state in (study.root / "annotation_output").glob("*/user_state.json"):
        labelled |= json.loads(state.read_text())["instance_id_to_label_to_value"].keys()
    return [item for item in items if item not in labelled]


def bundle_of(study, run, *parts):
    with tarfile.open(study.places.run_dir(run) / "bundle.tar.gz") as tar:
        return {row["id"]: row for part in parts
                for row in map(json.loads, tar.extractfile(f"{part}.jsonl").read().splitlines())}


def predictions_of(visitor):
    return visitor.current()["data"].get("predictions")


def test_prelabels_come_and_go_with_the_runs_and_outlive_a_restart(study, potato_server, wait_until):
    study.configure(writeback={"min_confidence": 0})
    first, second, third = free_items(study)[:3]
    server = potato_server(study)
    admin, dora = server.admin(), server.annotator("dora")
    assert "No runs yet" in admin.get().text
    dora.label(first, "sentiment", "negative")  # an answer of this moment is in the bundle, and gets no prelabel
    run = admin.start_run()
    assert study.ended(run).state == "succeeded", study.log(run)
    assert bundle_of(study, run, "train", "val", "test")[first]["labels"] == {"sentiment": "negative"}
    assert "prelabels" in study.log(run)
    assert study.run(run).started_by == "admin key"
    erin = server.annotator("erin")
    erin.go_to(second)
    seen = wait_until(lambda: predictions_of(erin), "the prelabel")
    assert seen["sentiment"]["label"] in ("positive", "negative")
    ask = f"/training/prelabels?instance_id={second}"
    assert erin.get(ask).json == {"sentiment": seen["sentiment"]["label"]}
    assert server.stranger().get(ask).status == 401
    erin.go_to(first)
    assert predictions_of(erin) is None

    server.stop(signal.SIGKILL)
    server = potato_server(study)
    admin, erin = server.admin(), server.annotator("erin", new=False)
    erin.go_to(second)
    assert predictions_of(erin) == seen, "there as soon as the server answers"
    erin.label(second, "sentiment", seen["sentiment"]["label"])  # confirms what was proposed
    assert erin.get(ask).json == {}
    study.configure(confirmed_prelabels="leave_out")
    again = admin.start_run()
    assert study.ended(again).state == "succeeded", study.log(again)
    seeds = [json.loads((study.places.run_dir(r) / "manifest.json").read_text())["pre_annotation_seeds"]["sentiment"]
             for r in (run, again)]
    assert seeds[1] == seeds[0] + 1
    assert second in bundle_of(study, again, "unlabeled")

    gone = admin.ask("DELETE", f"api/runs/{again}/predictions")
    assert gone.json["retracted"] > 0
    erin.go_to(third)
    wait_until(lambda: predictions_of(erin) in (None, {}), "the end of the prelabel")


def test_items_added_while_it_runs_are_learnt_from_and_predicted(study, potato_server, wait_until):
    study.configure(writeback={"min_confidence": 0})
    hook = {"enabled": True, "api_key": "hook"}
    server = potato_server(study, config={"trace_ingestion": hook})
    admin, stranger = server.admin(), server.stranger()
    live = study.root / "training" / "live_items.jsonl"

    def add(name):
        answer = stranger.post("/api/traces/webhook", {"id": name, "task_description": f"the text of {name}"},
                               headers={"X-API-Key": "hook"})
        assert answer.status < 300, answer.text
        return f"webhook_{name}"

    one, two = add("one"), add("two")
    run = admin.start_run()  # the bundle is of this moment, not of the last look
    assert study.ended(run).state == "succeeded", study.log(run)
    assert {one, two} <= bundle_of(study, run, "unlabeled").keys()
    assert len(live.read_text().splitlines()) == 3
    assert live.stat().st_mode & 0o777 == 0o600
    rows = [json.loads(line) for line in study.places.prelabels.read_text().splitlines()]
    assert {one, two} <= {row["instance_id"] for row in rows}, "and predicted"
    dora, ask = server.annotator("dora"), f"/training/prelabels?instance_id={one}"
    assert dora.get(ask).json == {}, "Potato has not given her this one"

    server.stop()
    server = potato_server(study, config={"trace_ingestion": hook})  # Potato keeps them, and so do we
    wait_until(lambda: f'"pid":{server.process.pid}' in live.read_text(), "the list of the new server")
    assert [json.loads(line).get("id") for line in live.read_text().splitlines()[1:]] == [one, two]


def test_items_of_a_directory_that_only_potato_reads(study, potato_server, wait_until):
    folder = study.root / "incoming"
    folder.mkdir()
    (study.root / "data" / "reviews.json").rename(folder / "reviews.json")
    server = potato_server(study, config={
        "data_files": [], "data_directory": "incoming", "watch_data_directory": True, "watch_poll_interval": 1.0})
    live = study.root / "training" / "live_items.jsonl"
    wait_until(lambda: live.exists() and len(live.read_text().splitlines()) == 61, "the items")
    (folder / "more.json").write_text(json.dumps([{"id": "later", "text": "a text that came later"}]))
    wait_until(lambda: '"later"' in live.read_text(), "the item that came later")
    run = server.admin().start_run()
    assert study.ended(run).state == "succeeded", study.log(run)
    assert "later" in bundle_of(study, run, "unlabeled")
    assert len(bundle_of(study, run, "train", "val", "test", "unlabeled")) == 61


def test_automatic_runs_follow_the_saves(study, potato_server, wait_until):
    study.configure(auto_retrain={"enabled": True, "trainer": "test-quick", "schemas": ["sentiment"],
                                  "update_frequency": 3, "min_interval_s": 0})
    server = potato_server(study)
    admin = server.admin()
    first = study.ended(wait_until(lambda: study.runs(), "the first run")[0].run_id)
    assert first.trigger == "auto"
    dora = server.annotator("dora")
    for n, item in enumerate(free_items(study)[:3]):
        assert len(study.runs()) == 1, "none before its time"
        dora.label(item, "sentiment", "positive" if n else "negative")
    second = wait_until(lambda: len(study.runs()) == 2 and study.runs()[0], "the second run")
    assert second.trigger == "auto"
    assert study.ended(second.run_id).state == "succeeded"
    assert wait_until(lambda: "0 of 3" in admin.get("api/status").json["auto_retrain"]["words"], "the reason")


def test_a_run_survives_the_server_and_a_killed_supervisor_the_run(study, potato_server, wait_until):
    server = potato_server(study)
    run = server.admin().start_run("test-slow", **SLOW)
    study.reaches(run, "running")
    server.stop()
    worker = study.worker()
    os.kill(study.supervisor(), signal.SIGKILL)
    wait_until(lambda: not study.processes("runtime.supervisor"), "its end")
    server = potato_server(study)
    study.supervisor()  # this server started one, asked by nobody
    assert study.worker() == worker
    admin = server.admin()
    assert wait_until(lambda: admin.get("api/status").json["running"], "the run")["run_id"] == run
    assert admin.post(f"api/runs/{run}/cancel").status == 200
    assert study.ended(run).state == "cancelled"
    study.nothing_is_left()


def test_two_servers_and_forked_workers_share_one_supervisor(study, potato_server, both, wait_until):
    """Two servers of one project, and a third that reads its config first and forks then, as gunicorn can."""
    study.configure(writeback={"min_confidence": 0})
    item = free_items(study)[0]
    servers = [potato_server(study), potato_server(study)]
    python, env = both
    ports, output = study.root.with_name("ports"), study.root.with_name("forking.out").open("wb")
    with output:
        forking = subprocess.Popen(
            [python, os.path.join(os.path.dirname(__file__), "forking_server.py"), "config.yaml", ports],
            cwd=study.root, env={**study.env, **env}, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    study.started.append(forking)
    wait_until(lambda: ports.exists() or forking.poll() is not None, "the forking server")
    servers += [Forked(servers[0], int(port)) for port in ports.read_text().split()]
    admins = [server.admin() for server in servers]
    first = admins[0].start_run("test-slow", **SLOW)
    study.reaches(first, "running")
    runs = [admin.start_run() for admin in admins[1:]]
    # one that finds another at work when it begins is gone at once
    wait_until(lambda: len(study.processes("runtime.supervisor")) == 1, "one supervisor for all")
    assert [study.run(run).state for run in runs] == ["queued"] * 3
    assert admins[3].post(f"api/runs/{first}/cancel").status == 200
    assert study.ended(first).state == "cancelled"
    for run in runs:
        assert study.ended(run).state == "succeeded", study.log(run)
    for admin in admins:
        assert {run["run_id"] for run in admin.get("api/runs").json["runs"]} == {first, *runs}
    for n, server in enumerate(servers):
        visitor = server.annotator(f"annotator{n}")
        visitor.go_to(item)
        wait_until(lambda: predictions_of(visitor), f"the prelabel at server {n}")  # noqa: B023
    forking.terminate()
    forking.wait(60)


class Forked:
    def __init__(self, like, port):
        self._like, self.port, self.study = like, port, like.study

    def admin(self):
        return type(self._like).admin(self)

    def annotator(self, name):
        return type(self._like).annotator(self, name)
