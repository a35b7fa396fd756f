"""Runs on a workstation behind a NAT: two networks with a router between them, and no way in."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

SHORT = {"agent_give_up_s": 24}
TO_STATION = ("--backend", "station")
SERVER, OUTSIDE, LAB = "198.51.100.1", "198.51.100.7", "192.168.77.2"


def connects(network, space, address, port):
    """Whether a program in one of the networks gets a connection to an address."""
    code = "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"
    return subprocess.run(
        network.within(space, [sys.executable, "-c", code, address, port]), capture_output=True, timeout=60
    ).returncode == 0


def prelabels(far):
    return [json.loads(line) for line in far.study.places.prelabels.read_text().splitlines()]


def test_nothing_gets_in_and_a_run_goes_through(behind_nat, network):
    """From register to prelabels, over a wire with 40 ms and a packet of fifty lost in each direction."""
    network.wire.delay_s, network.wire.loss = 0.04, 0.02
    far = behind_nat()
    listen = subprocess.Popen(network.within(network.lab, [
        sys.executable, "-c", "import socket; s=socket.create_server(('', 8022)); print('up', flush=True); s.accept()",
    ]), stdout=subprocess.PIPE)
    try:
        assert listen.stdout.readline() == b"up\n"
        for address in (LAB, OUTSIDE):
            assert not connects(network, network.server, address, 8022)
        assert connects(network, network.nat, LAB, 8022), "the lab's own router reaches it"
    finally:
        listen.kill()
        listen.communicate()
    far.serve()
    process, run_id = far.study.train("test-quick", *TO_STATION)
    agent = far.agent("--once")
    output, code = far.study.finish(process)
    assert code == 0, output
    assert agent.wait(90) == 0
    assert far.study.ended(run_id).state == "succeeded"
    assert prelabels(far)
    assert network.wire.lost > 0, "the wire did lose packets"


@pytest.mark.slow
def test_a_link_that_is_cut_three_times_during_the_download(behind_nat, network):
    """Twice it falls silent, once the router forgets all connections; each time the rest is fetched, not the whole."""
    far = behind_nat(items=6000, bounds=SHORT)
    network.wire.delay_s, network.wire.rate = 0.01, 400_000
    far.serve()
    process, run_id = far.study.train("test-quick", *TO_STATION)
    far.claimable(run_id)
    bundle = far.study.places.run_dir(run_id) / "bundle.tar.gz"
    size = bundle.stat().st_size
    assert size > 1_000_000
    agent = far.agent("--once")
    had = 0
    for number, how in enumerate(("silent", "reset", "silent"), 1):
        far.study.wait_until(lambda had=had: far.fetched(run_id) > had + 100_000, f"bytes before cut {number}")
        if how == "silent":
            network.wire.cut = True
        else:
            network.forget_connections()
        far.study.wait_until(lambda n=number: far.said(run_id, "bytes") >= n, f"cut {number} being noticed")
        had = far.fetched(run_id)
        assert had < size
        network.wire.cut = False
        network.remember()
    network.wire.rate = None
    output, code = far.study.finish(process)
    assert code == 0, output
    assert agent.wait(90) == 0
    events = [json.loads(line) for line in (far.study.places.run_dir(run_id) / "agent.jsonl").read_text().splitlines()]
    broken = [e["step"] for e in events if "bytes" in e.get("step", "")]
    assert len(broken) == 3
    starts = [int(step.rpartition(" after ")[2].split()[0]) for step in broken]
    assert starts == sorted(set(starts)), "each attempt went on where the one before had stopped"
    assert far.study.ended(run_id).state == "succeeded"
    job = json.loads((far.study.places.run_dir(run_id) / "job.json").read_text())
    assert job["bundle"]["size"] == size


@pytest.mark.slow
@pytest.mark.thorough("two minutes of waiting")
def test_a_link_that_is_cut_for_100_seconds_during_training_costs_nothing(behind_nat, network):
    """As promised: with the timeouts as they come, and the training going on meanwhile."""
    far = behind_nat()
    network.wire.delay_s = 0.01
    far.serve()
    far.agent()
    process, run_id = far.study.train("test-slow", *TO_STATION, steps=100_000, step_seconds=0.3)
    far.study.reaches(run_id, "running")
    far.study.wait_until(lambda: len(steps_of(far.study.events(run_id))) > 1, "some steps")
    network.wire.cut = True
    cut_at = time.monotonic()
    (worker,) = far.study.wait_until(lambda: workers(far, run_id), "the worker")
    far.study.wait_until(lambda: time.monotonic() - cut_at >= 100, "the cut's end", patience=200)
    there = steps_of(far.study.events(run_id))
    lines = (far.job(run_id) / "events.jsonl").read_text().split("\n")[:-1]  # the last one may be half written
    done = steps_of(map(json.loads, lines))
    assert far.study.run(run_id).state == "running"
    assert len(done) > len(there) + 20, "it trained on, and nothing came through"
    network.wire.cut = False
    far.study.wait_until(lambda: set(done) <= set(steps_of(far.study.events(run_id))), "what was said meanwhile")
    assert far.study.store().wish(run_id, "keep") == "left"
    output, code = far.study.finish(process)
    assert code == 0, output
    assert far.study.ended(run_id).state == "succeeded"
    told = steps_of(far.study.events(run_id))
    assert told == sorted(set(told)), "nothing twice, nothing out of order"
    assert {e["pid"] for e in far.study.events(run_id) if "pid" in e} == {worker}


def test_a_link_that_stays_away_ends_the_run_on_both_sides(behind_nat, network):
    far = behind_nat(bounds={"agent_give_up_s": 6}, heartbeat_timeout_s=6)
    far.serve()
    far.agent()
    process, run_id = far.study.train("test-slow", *TO_STATION, steps=100000, step_seconds=0.05)
    far.study.reaches(run_id, "running")
    far.study.wait_until(lambda: workers(far, run_id), "the worker")
    network.wire.cut = True
    output, code = far.study.finish(process)
    assert code == 1
    assert "No word from the agent on station for 6 seconds" in output
    far.study.wait_until(lambda: not workers(far, run_id), "the worker's end, while nobody could tell it to")
    assert far.study.store().releases(), "nobody has confirmed that yet"
    network.wire.cut = False
    far.study.wait_until(lambda: not far.study.store().releases(), "the agent's report")
    assert far.study.run(run_id).state == "failed"


def test_predictions_over_a_bad_link_arrive_as_they_were(behind_nat, network):
    far = behind_nat(items=1500, bounds=SHORT)
    network.wire.delay_s, network.wire.loss, network.wire.rate = 0.03, 0.03, 600_000
    far.serve()
    process, run_id = far.study.train("test-quick", *TO_STATION)
    agent = far.agent("--once")
    output, code = far.study.finish(process)
    assert code == 0, output
    assert agent.wait(90) == 0
    saved = (far.study.places.run_dir(run_id) / "predictions.jsonl").read_bytes()
    (result,) = [e for e in far.study.events(run_id) if e["event"] == "result"]
    assert hashlib.sha256(saved).hexdigest() == result["predictions_sha256"]
    assert len(saved.splitlines()) == result["n_predictions"] > 1400


def steps_of(events):
    """The steps of the training that events tell of; not every one is told."""
    return [event["current"] for event in events if event["event"] == "progress" and event["phase"] == "fit"]


def workers(far, run_id):
    """pids of the run's worker on the far side, where no namespace of processes hides it."""
    return [pid for pid in all_processes() if str(far.job(run_id)) in where(pid) and "--spec" in command(pid)]


def all_processes():
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def where(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
