"""Whole jobs: an agent process, its worker process, the routes behind a unix socket."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

RUNNING = ["event", "status", {"state": "running", "step": "fit", "software": {"stub": "1.2"}, "host": "h"}]


def test_a_job_from_claim_to_result(bench):
    job, agent = bench.run(
        [RUNNING, ["event", "progress", {"phase": "fit", "current": 1, "total": 2}], ["artifact", "model.bin"],
         ["stderr", "10%\r20%\r30%\nlast words\n"], ["predictions", '{"instance_id":"a"}\n'], ["exit", 0]],
        files={"manifest.json": b"{}\n", "media/a/b.txt": b"deep"},
    )
    assert agent.greeting == f"agent {agent.pid} generation 1"
    assert [e["event"] for e in job.worker_events] == ["status", "progress", "result"]
    assert job.predictions == b'{"instance_id":"a"}\n'
    assert job.results == [{
        "exit_code": 0, "reason": "finished", "software": {"stub": "1.2", "python": job.result["software"]["python"]},
        "artifact_uri": f"file://{os.uname().nodename}{bench.jobdir.path('artifacts')}",
    }]
    assert Path(bench.jobdir.path("bundle", "media", "a", "b.txt")).read_bytes() == b"deep"
    assert json.loads(Path(bench.jobdir.path("spec.json")).read_text())["bundle_dir"] == "bundle"
    stderr = [e["msg"] for e in job.agent_events if e.get("level") == "stderr"]
    assert stderr == ["30%", "last words"]
    assert bench.said("the worker ended with exit code 0")
    assert job.claims[0]["hostname"] == os.uname().nodename


def test_directories_are_0700_and_files_0600_whatever_the_umask(bench, modes):
    bench.add_job([RUNNING, ["predictions", "x\n"], ["artifact", "m"], ["exit", 0]], files={"media/a.txt": b"x"})
    assert bench.start_agent(umask=0).wait(60) == 0
    found = modes(bench.jobdir.root)
    wrong = {
        path: oct(mode) for path, mode in found.items()
        if mode != (0o700 if stat.S_ISDIR(os.lstat(path).st_mode) else 0o600)
    }
    assert not wrong
    assert len(found) > 30  # the code went along


def test_what_the_worker_cannot_say_in_json_is_said_for_it(bench):
    job, _ = bench.run([
        RUNNING, ["raw", '{"torn\n'], ["raw", '{"event":"metric","value":NaN}\n'], ["raw", "[1]\n"],
        ["raw", '{"event":"log","msg":"' + "x" * 70_000 + '"}\n'], ["raw", '{"event":"log","msg":"\xff"}\n'],
        ["raw", '{"event":"log","msg":"no newline"}'], ["exit", 1],
    ])
    told = [(e["event"], e.get("msg") or e.get("nonfinite")) for e in job.worker_events]
    assert told[1] == ("log", "events.jsonl line 2 unreadable, skipped")
    assert told[2] == ("metric", "nan")
    assert told[3] == ("log", "events.jsonl line 4 unreadable, skipped")
    assert job.worker_events[4]["cut"] is True
    assert told[5] == ("log", "events.jsonl line 6 unreadable, skipped")
    assert told[6] == ("log", "no newline")
    assert job.result["exit_code"] == 1


def test_twenty_thousand_events_arrive_in_order(bench):
    job, _ = bench.run([RUNNING, ["many", 20_000], ["exit", 0]])
    assert [e["current"] for e in job.worker_events[1:]] == list(range(1000)) * 20
    assert job.batches < 200


def test_the_token_is_on_no_command_line_and_in_no_environment(bench):
    bench.add_job([RUNNING, ["environment"], ["hang"]], grace_seconds=0.2)
    agent = bench.start_agent(env={"POTATO_TRAINING_TOKEN": bench.token, "MY_SECRET": "x", "HF_TOKEN": "y"})
    environment = json.loads(bench.wait_until(
        lambda: next((e["msg"] for e in bench.job.worker_events if e["event"] == "log"), None), "the environment"
    ))
    found = []
    for pid in (bench.worker.pid, agent.pid):
        for name in ("cmdline", "environ"):
            found.append((pid, name, bench.token.encode() in Path(f"/proc/{pid}/{name}").read_bytes()))
    # the agent's own environment is what the test gave it; what it starts has none of it
    assert [f for f in found if f[2]] == [(agent.pid, "environ", True)]
    assert not {"POTATO_TRAINING_TOKEN", "MY_SECRET", "HF_TOKEN"} & environment.keys()
    assert environment["PYTHONPATH"].startswith(bench.jobdir.path("code"))
    said = json.dumps(bench.job.streams) + (bench.jobdir.read("stderr.log") or "")
    assert bench.token not in said
    bench.job.cancel = True
    assert agent.wait(60) == 0


def test_the_token_of_a_job_leaves_its_directory_at_the_end(bench):
    bench.run([RUNNING, ["exit", 0]])
    everything = b"".join(p.read_bytes() for p in Path(bench.jobdir.root).rglob("*") if p.is_file())
    assert bench.token.encode() not in everything


def test_a_worker_that_cannot_be_started_is_a_sentence(bench):
    job, _ = bench.run([], python="/opt/none/bin/python3")
    assert job.result["exit_code"] is None
    assert job.result["reason"] == "start-failed"
    error = next(e for e in job.agent_events if e["event"] == "error")
    assert error["message"] == f"/opt/none/bin/python3 was not found on {os.uname().nodename}"


def test_a_worker_killed_by_a_signal_leaves_128_and_its_number(bench):
    job, _ = bench.run([RUNNING, ["die", 9]])
    assert (job.result["exit_code"], job.result["reason"]) == (137, "finished")
    assert bench.jobdir.read_exit_code("exit_code") == 137


def test_children_of_the_worker_do_not_outlive_it(bench):
    job, _ = bench.run([RUNNING, ["spawn"], ["exit", 0]])
    child = int(next(e["msg"] for e in job.worker_events if e["event"] == "log").split()[1])
    stat_file = Path(f"/proc/{child}/stat")
    assert not stat_file.exists() or stat_file.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_protocol_from_the_future_ends_with_a_line_on_both_sides(bench):
    job = bench.add_job([], protocol=2)
    agent = bench.start_agent()
    assert agent.wait(60) == 1
    assert "protocol 2" in agent.stderr.read().decode()
    assert "protocol 2" in job.result["reason"]


def test_an_answer_that_was_lost_changes_nothing(bench):
    """Every request is done twice by the server, once without an answer."""
    bench.add_job([RUNNING, ["many", 3000], ["predictions", "p\n"], ["exit", 0]])
    real = {name: getattr(bench.intake, name) for name in ("claim", "events", "result")}
    for name, method in real.items():
        times = []

        def twice(*arguments, method=method, times=times):
            answer = method(*arguments)
            times.append(1)
            if len(times) % 2:
                raise RuntimeError("the answer is lost")
            return answer

        setattr(bench.intake, name, twice)
    assert bench.start_agent().wait(60) == 0
    assert len(bench.job.worker_events) == 3002
    assert len(bench.job.results) == 1
    assert bench.job.predictions == b"p\n"
