"""The agent backend with a real server, a real agent and a real command."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"
LONG = {"steps": 100000, "step_seconds": 0.05}
TO_STATION = ("--backend", "station")


class Station:
    """A study with a server that is up, and agents for its backend ``station``."""

    def __init__(self, study, tmp_path):
        self.study = study
        self.tmp_path = tmp_path
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.server = None
        printed = study.potato("training", "register", "station", check=True).stdout
        self.token = re.search(r"^  ([A-Za-z0-9_-]{40,})$", printed, re.MULTILINE)[1]
        self.printed = printed

    def serve(self):
        self.server = self.study.start("training", "serve", "-p", self.port)

        def up():
            assert self.server.poll() is None, self.server.stdout.read()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                return False
            return True

        self.study.wait_until(up, "the server")
        return self

    def python(self):
        """An interpreter that has the test trainers: an agent passes no PYTHONPATH of its own on."""
        path = self.tmp_path / "python"
        trainers = shlex.quote(str(FIXTURES / "trainers"))
        path.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{trainers} exec {shlex.quote(sys.executable)} "$@"\n')
        path.chmod(0o755)
        return path

    def agent(self, *more, token=None, name="agent"):
        env = {**self.study.env, "POTATO_TRAINING_TOKEN": token or self.token}
        process = subprocess.Popen(
            [sys.executable, "-m", "potato_training.cli", "training", "agent", "--server",
             f"http://127.0.0.1:{self.port}", "--backend", "station", "--workdir", str(self.tmp_path / name),
             "--python", str(self.python()), *more],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.study.started.append(process)
        return process

    def ask(self, token, path="claim", body=None):
        """(status, body) of one request of the protocol."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/training/v1/{path}", method="POST",
            data=json.dumps(body or {"agent_id": "x1", "hostname": "h"}).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@pytest.fixture
def station(study, tmp_path):
    study.configure(backends={"station": {"type": "agent"}, "other": {"type": "agent"}})
    return Station(study, tmp_path)


def test_register_prints_the_token_once_and_how_to_use_it(station):
    lines = station.printed.splitlines()
    assert lines[0] == "Token for backend 'station' (shown once; registering again replaces it):"
    assert lines[2] == f"  {station.token}"
    assert lines[4] == "On the training machine:"
    assert lines[6] == f"  export POTATO_TRAINING_TOKEN={station.token}"
    assert lines[7] == "  potato training agent --server http://<this-server>:8000 --backend station"
    for path in station.study.places.root.rglob("*"):
        assert not path.is_file() or station.token.encode() not in path.read_bytes()


def test_a_run_from_register_to_prelabels(station):
    station.serve()
    process, run_id = station.study.train("test-quick", *TO_STATION)
    station.study.wait_until(lambda: station.study.run(run_id).facts.get("claimable"), "the bundle")
    assert station.study.run(run_id).state == "queued"
    agent = station.agent("--once")
    output, code = station.study.finish(process)
    assert code == 0, output
    assert agent.wait(60) == 0
    run = station.study.ended(run_id)
    assert run.facts["agent"]["hostname"] == socket.gethostname()
    assert run.facts["report"]["artifact_uri"]
    assert station.study.places.prelabels.exists()


def test_a_run_waiting_for_an_agent_holds_nobody_back(station):
    waiting, waiting_id = station.study.train("test-quick", *TO_STATION)
    assert station.study.potato("training", "run", "--trainer", "test-quick").returncode == 0
    assert station.study.run(waiting_id).state == "queued"
    assert station.study.run(waiting_id).step == "No agent has asked for work for station"
    station.study.potato("training", "cancel", waiting_id, check=True)
    station.study.finish(waiting)
    assert station.study.run(waiting_id).state == "cancelled"


def test_queue_timeout_fails_the_run_and_says_what_to_start(station):
    station.study.configure(backends={"station": {"type": "agent", "queue_timeout_s": 1}})
    ran = station.study.potato("training", "run", "--trainer", "test-quick", *TO_STATION)
    assert ran.returncode == 1
    assert "failed: No agent has asked for work for station" in ran.stdout
    assert "potato training agent --backend station" in ran.stdout


def test_cancel_reaches_the_agent_and_it_asks_for_the_next(station):
    station.serve()
    station.agent()
    process, run_id = station.study.train("test-slow", *TO_STATION, **LONG)
    station.study.reaches(run_id, "running")
    station.study.potato("training", "cancel", run_id, check=True)
    station.study.finish(process)
    assert station.study.ended(run_id).state == "cancelled"
    assert station.study.potato("training", "run", "--trainer", "test-quick", *TO_STATION).returncode == 0


def test_two_agents_with_one_token_claim_one_run_once(station):
    station.serve()
    station.agent(name="a")
    station.agent(name="b")
    ran = station.study.potato("training", "run", "--trainer", "test-slow", "--param", "steps=20", *TO_STATION)
    assert ran.returncode == 0
    (run,) = station.study.runs()
    assert sum(e["event"] == "result" for e in station.study.events(run.run_id)) == 1
    assert len({e.get("pid") for e in station.study.events(run.run_id) if e.get("pid")}) == 1


@pytest.mark.parametrize("who", ["supervisor", "server"])
def test_a_supervisor_or_server_killed_meanwhile_costs_nothing(station, who):
    station.serve()
    station.agent()
    process, run_id = station.study.train("test-slow", *TO_STATION, steps=80, step_seconds=0.05)
    station.study.reaches(run_id, "running")
    if who == "supervisor":
        os.kill(station.study.supervisor(), signal.SIGKILL)
    else:
        station.server.kill()
        station.server.wait()
        station.serve()
    output, code = station.study.finish(process)
    assert code == 0, output
    assert station.study.ended(run_id).state == "succeeded"


def test_an_agent_that_falls_silent_fails_the_run_and_hears_that_it_is_over(station):
    station.study.configure(backends={"station": {"type": "agent", "heartbeat_timeout_s": 8}})
    station.serve()
    agent = station.agent()
    process, run_id = station.study.train("test-slow", *TO_STATION, **LONG)
    station.study.reaches(run_id, "running")
    os.kill(agent.pid, signal.SIGSTOP)
    output, code = station.study.finish(process)
    assert code == 1
    assert "No word from the agent on station for 8 seconds" in output
    assert station.study.store().releases(), "the far side has not confirmed anything yet"
    pids = [e["pid"] for e in station.study.events(run_id) if "pid" in e]
    os.kill(agent.pid, signal.SIGCONT)
    station.study.wait_until(lambda: not station.study.store().releases(), "the agent's report")
    assert station.study.run(run_id).state == "failed", "the verdict stands"
    station.study.wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the worker's end")
    assert station.study.run(run_id).facts["report"]["reason"] == "gone"
    ran = station.study.potato("training", "run", "--trainer", "test-quick", *TO_STATION)
    assert ran.returncode == 0, "the agent is there for the next run"


def test_tokens_of_others_and_of_nobody(station):
    station.serve()
    printed = station.study.potato("training", "register", "other", check=True).stdout
    other = re.search(r"^  ([A-Za-z0-9_-]{40,})$", printed, re.MULTILINE)[1]
    station.agent()
    process, run_id = station.study.train("test-slow", *TO_STATION, **LONG)
    station.study.reaches(run_id, "running")
    wrong = [station.ask(token) for token in ("nonsense", "", station.token[:-1])]
    assert len(set(wrong)) == 1
    assert wrong[0][0] == 401
    batch = {"stream": "worker", "seq": 0, "events": []}
    assert station.ask(other, f"jobs/{run_id}/events", batch)[0] == 404
    assert station.ask(other, "jobs/../events", batch)[0] == 404
    assert station.ask(station.token, f"jobs/{run_id}/events", batch)[0] == 200
    fresh = station.study.potato("training", "register", "station", check=True).stdout
    assert station.ask(station.token)[0] == 401, "a new token ends the old one at once"
    assert station.token not in fresh
    station.study.potato("training", "cancel", run_id, check=True)
    station.study.finish(process)


def test_check_tells_what_the_token_knows(station):
    checked = station.study.potato("training", "check", "other")
    assert checked.returncode == 1
    assert "no token issued yet" in checked.stdout
    assert "potato training register other config.yaml" in checked.stdout
    checked = station.study.potato("training", "check", "station")
    assert checked.returncode == 0
    assert "no agent has used it yet" in checked.stdout
    station.serve()
    station.agent()
    station.study.wait_until(
        lambda: "last seen" in station.study.potato("training", "check", "station").stdout, "the agent's first word"
    )


def test_only_agent_backends_are_registered(station):
    refused = station.study.potato("training", "register", "local")
    assert refused.returncode == 2
    assert "is of type local" in refused.stderr
