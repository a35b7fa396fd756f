"""The agent that a person starts: over TCP, with a backend's token, job after job."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

import pytest
from potato_training.runtime.protocol_types import Principal

LAB = Principal("backend", "lab")
RUNNING = ["event", "status", {"state": "running"}]
PLAN = [RUNNING, ["artifact", "model.bin"], ["predictions", "p\n"], ["exit", 0]]


@pytest.fixture
def server(bench, tcp_server):
    bench.intake.tokens[bench.token] = LAB
    return tcp_server(bench.intake)


def home(bench, run_id="run-1"):
    return bench.folder / "home" / "lab" / "jobs" / run_id


def errors(agent):
    return agent.stderr.read().decode()


def test_one_job_and_what_stays_of_it(bench, server, modes):
    job = bench.add_job(owner=LAB)
    agent = bench.start_poll(server, "--once", plan=PLAN)
    assert agent.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    assert job.result["artifact_uri"] == f"file://{os.uname().nodename}{home(bench)}/artifacts"
    assert job.predictions == b"p\n"
    assert sorted(p.name for p in home(bench).iterdir()) == ["artifacts", "reported"]
    assert {mode for path, mode in modes(bench.folder / "home").items()} == {0o700, 0o600}
    assert "job run-1 is reported" in errors(agent)


def test_keep_keeps_the_bundle(bench, server):
    bench.add_job(owner=LAB)
    assert bench.start_poll(server, "--once", "--keep", plan=PLAN).wait(60) == 0
    assert (home(bench) / "bundle" / "manifest.json").exists()


def test_job_after_job_until_it_is_stopped(bench, server):
    agent = bench.start_poll(server, plan=PLAN)
    for number in range(3):
        job = bench.add_job(owner=LAB, run_id=f"run-{number}")
        bench.wait_until(lambda job=job: job.result, "its result")
    agent.terminate()
    assert agent.wait(60) == 0
    assert not (bench.folder / "home" / "lab" / "jobs" / "run-1" / "job.json").exists()


def test_two_agents_with_one_token_claim_one_run_once(bench, server):
    job = bench.add_job(owner=LAB)
    agents = [bench.start_poll(server, "--workdir", bench.folder / f"home-{n}", plan=PLAN) for n in range(2)]
    bench.wait_for_result()
    for agent in agents:
        agent.terminate()
    assert [agent.wait(60) for agent in agents] == [0, 0]
    assert len({claim["agent_id"] for claim in job.claims}) == 1
    assert [e["event"] for e in job.worker_events].count("result") == 1


def test_two_agents_in_one_folder_are_one_too_many(bench, server):
    first = bench.start_poll(server, plan=PLAN)
    bench.wait_until(lambda: (bench.folder / "home" / "lab" / "agent-id").exists(), "the first agent")
    second = bench.start_poll(server, plan=PLAN)
    assert second.wait(60) == 2
    assert f"running here already (pid {first.pid}" in errors(second)


def test_an_agent_that_was_killed_goes_on_with_its_job(bench, server):
    job = bench.add_job(owner=LAB)
    plan = [["forget_stdin"], RUNNING, ["wait_file", "go"], *PLAN[1:]]
    first = bench.start_poll(server, plan=plan)
    bench.wait_for_worker_event(event="status")
    first.kill()
    first.wait()
    (home(bench) / "go").touch()
    assert bench.start_poll(server, "--once", plan=plan).wait(60) == 0
    assert job.result["reason"] == "finished"
    assert [e["event"] for e in job.worker_events] == ["status", "result"]
    assert len(job.claims) == 1


def test_sigterm_stops_the_worker_and_reports(bench, server):
    job = bench.add_job(owner=LAB)
    agent = bench.start_poll(server, plan=[["heed_term"], RUNNING, ["hang"]])
    bench.wait_for_worker_event(event="status")
    agent.send_signal(signal.SIGINT)
    assert agent.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (4, "agent-stopped")


@pytest.mark.parametrize("token", ["wrong", "x" * 43])
def test_a_rejected_token_ends_it_with_one_clear_line(bench, server, token):
    agent = bench.start_poll(server, token=token)
    assert agent.wait(60) == 1
    lines = errors(agent).splitlines()
    assert len(lines) == 2
    assert "does not take this token for lab: register the backend again" in lines[1]


def test_a_token_that_is_replaced_in_the_middle_stops_the_worker(bench, server):
    bench.add_job(owner=LAB)
    agent = bench.start_poll(server, plan=[["heed_term"], RUNNING, ["hang"]])
    bench.wait_for_worker_event(event="status")
    bench.jobdir = type(bench.jobdir)(home(bench))
    worker = bench.worker
    bench.intake.tokens.clear()
    assert agent.wait(60) == 1
    assert not worker.is_alive()


@pytest.mark.parametrize(("arguments", "token", "words"), [
    ([], "", "no token: set POTATO_TRAINING_TOKEN"),
    ([], "two words", "what is in POTATO_TRAINING_TOKEN is no token"),
    (["--token-file", "/nowhere"], "", "/nowhere cannot be read"),
    (["--backend", "../x"], "t", "is not the name of a backend"),
    (["--server", "ftp://x"], "t", "is not the URL of a server"),
    (["--server", "https://me:secret@x"], "t", "must not hold a name or password"),
    (["--ca-file", "/dev/null"], "t", "/dev/null is not a file of certificates"),
])
def test_wrong_usage_is_a_line_and_exit_code_2(bench, server, arguments, token, words):
    agent = bench.start_poll(server, *arguments, token=token)
    assert agent.wait(60) == 2
    text = errors(agent)
    assert words in text and len(text.splitlines()) == 1
    assert "secret" not in text and "two words" not in text


def test_a_token_file_that_others_can_read_is_refused(bench, server):
    bench.add_job(owner=LAB)
    file = bench.folder / "token"
    file.write_text(bench.token + "\n")
    file.chmod(0o644)
    agent = bench.start_poll(server, "--token-file", file, "--once", plan=PLAN, token="")
    assert agent.wait(60) == 2
    assert "can be read by others (mode 0644)" in errors(agent)
    file.chmod(0o600)
    assert bench.start_poll(server, "--token-file", file, "--once", plan=PLAN, token="").wait(60) == 0


def test_the_server_cannot_say_what_is_executed(bench, server, tmp_path):
    """Neither by an interpreter of its own, nor by variables that make ours run something else."""
    trap = tmp_path / "trap"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {trap}\n")
    evil.chmod(0o755)
    job = bench.add_job(
        owner=LAB, python=str(evil), job_script=f"#!/bin/sh\ntouch {trap}\n",
        env={"PATH": str(tmp_path), "LD_PRELOAD": "/evil.so", "PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "1"},
    )
    agent = bench.start_poll(server, "--once", plan=[RUNNING, ["environment"], ["exit", 0]])
    assert agent.wait(60) == 0
    environment = json.loads(next(e["msg"] for e in job.worker_events if e["event"] == "log"))
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["PYTHONPATH"] == str(home(bench) / "code")
    assert "LD_PRELOAD" not in environment and environment["PATH"] != str(tmp_path)
    assert not {"POTATO_TRAINING_TOKEN", "STUB_PLAN"} & environment.keys()
    assert not trap.exists()


@pytest.mark.parametrize("run_id", ["../x", "a/b", "", "..", None, 7])
def test_a_run_id_is_no_path(bench, server, run_id):
    job = bench.add_job(owner=LAB)
    job.message["run_id"] = run_id
    agent = bench.start_poll(server, plan=PLAN)
    bench.wait_until(lambda: job.claims, "the claim")
    agent.terminate()
    assert agent.wait(60) == 0
    assert not any((bench.folder / "home").rglob("job.json"))
    assert "the server answered the claim with 200" in errors(agent)


def test_folders_of_the_agent_are_private_whatever_the_umask(bench, server):
    old = os.umask(0)
    try:
        agent = bench.start_poll(server, plan=PLAN)
    finally:
        os.umask(old)
    bench.wait_until(lambda: Path(bench.folder, "home", "lab", "agent-id").exists(), "its folder")
    assert stat.S_IMODE((bench.folder / "home").stat().st_mode) == 0o700
    agent.terminate()
    assert agent.wait(60) == 0
