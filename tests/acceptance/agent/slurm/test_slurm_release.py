"""A Slurm job whose agent is gone is let go of, and that is proven."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

RUNNING = ["event", "status", {"state": "running", "host": "node07"}]
AT_ONCE = [{"after": 0, "state": "RUNNING", "node": "node07"}]
AWAY = {"act": False, "rc": 1, "stderr": "slurm_load_jobs error: Socket timed out on send/recv operation\n"}


def release(slurm, patience="1"):
    return subprocess.Popen(
        [sys.executable, "-m", "potato_training.worker.release", slurm.bench.jobdir.root, patience], env=slurm.env,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def killed(slurm, life=AT_ONCE, **scenario):
    """A job without an agent; it does not listen to signals."""
    slurm.fake.scenario(life=life, **scenario)
    slurm.clock()
    slurm.add([["ignore_term"], RUNNING, ["hang"]])
    agent = slurm.start()
    if life is AT_ONCE and not scenario:
        slurm.bench.wait_for_worker_event(event="status")
        slurm.bench.wait_until(lambda: slurm.record.get("ran"), "what the agent knows")
    else:
        slurm.bench.wait_until(lambda: slurm.fake.calls("sbatch") and slurm.fake.state()["submitted"], "the job")
    agent.kill()
    agent.wait()


@pytest.mark.parametrize("life", [AT_ONCE, [{"after": 9999, "state": "RUNNING"}]], ids=["running", "pending"])
def test_the_job_is_cancelled(slurm, life):
    killed(slurm, life)
    child = release(slurm)
    said, _ = child.communicate(timeout=90)
    assert child.returncode == 0, said
    assert slurm.fake.job("4242")["state"] in ("CANCELLED", "FAILED")


def test_a_job_whose_id_nobody_knows(slurm):
    killed(slurm, calls={"sbatch": [{"hang": True}]})
    child = release(slurm)
    assert (child.communicate(timeout=90)[0], child.returncode) == ("", 0)
    assert slurm.fake.job("4242")["state"] in ("CANCELLED", "FAILED")


def test_not_before_the_controller_has_answered(slurm):
    killed(slurm)
    slurm.fake.scenario(life=AT_ONCE, calls={name: [AWAY] for name in ("squeue", "scontrol", "scancel")})
    child = release(slurm)
    slurm.bench.wait_until(lambda: len(slurm.fake.calls("scancel")) >= 3, "three tries")
    assert child.poll() is None
    slurm.fake.scenario(life=AT_ONCE)
    assert (child.communicate(timeout=90)[0], child.returncode) == ("", 0)
    assert slurm.fake.job("4242")["state"] in ("CANCELLED", "FAILED")


def test_its_agent_is_ended_first(slurm):
    slurm.fake.scenario(life=AT_ONCE)
    slurm.clock()
    slurm.add([RUNNING, ["hang"]])
    agent = slurm.start()
    slurm.bench.wait_for_worker_event(event="status")
    child = release(slurm, "0")
    assert child.communicate(timeout=90)[0].startswith(f"ended={agent.pid}\n")
    assert child.returncode == 0
    assert agent.wait(60) == -9
    assert slurm.fake.job("4242")["state"] in ("CANCELLED", "FAILED")


def test_what_is_over_is_confirmed(slurm):
    slurm.fake.scenario(life=AT_ONCE, min_job_age=1)
    slurm.clock()
    slurm.whole([RUNNING, ["exit", 0]])
    slurm.fake.tick(5)
    child = release(slurm)
    assert (child.communicate(timeout=90)[0], child.returncode) == ("", 0)


@pytest.mark.parametrize("when", ["refused", "before sbatch"])
def test_nothing_is_submitted_by_whoever_lets_go(slurm, when):
    slurm.fake.scenario(life=AT_ONCE)
    slurm.clock()
    slurm.add([RUNNING, ["hang"]], keys={"partition": "nope"})
    assert slurm.start().wait(90) == 0
    record = slurm.record
    assert (record["tries"], record["calls"], bool(record["refused"])) == (1, {"sbatch": 1}, True)
    if when != "refused":       # as an agent leaves it that is killed right after it has made everything ready
        slurm.bench.jobdir.write_json("slurm.json", {**record, "tries": 0, "refused": "", "calls": {}})
    child = release(slurm)
    assert (child.communicate(timeout=90)[0], child.returncode) == ("", 0)
    assert slurm.record["calls"] == ({"sbatch": 1} if when == "refused" else {})


@pytest.mark.parametrize("patience", ["0", "1"])
def test_the_last_output_comes_along_where_nobody_has_reported_it(slurm, patience):
    """A server that has the report has the output as well, and leaves the agent time to end."""
    slurm.fake.scenario(life=AT_ONCE)
    slurm.clock()
    slurm.add([["stderr", "a last word\n"], RUNNING, ["exit", 3]], keys={"prelude": ["echo hello"]})
    agent = slurm.start()
    slurm.bench.wait_for_worker_event(event="status")
    agent.kill()
    agent.wait()
    slurm.bench.wait_until(lambda: slurm.bench.jobdir.read("exit_code"), "the worker's end")
    said, _ = (child := release(slurm, patience)).communicate(timeout=90)
    assert child.returncode == 0, said
    assert said == ("slurm=hello\nstderr=a last word\n" if patience == "0" else "")


def test_an_agent_elsewhere_leaves_when_the_directory_is_gone(slurm):
    """Another login node has released the job and removed its directory, before this node's agent knew its end."""
    slurm.fake.scenario(life=AT_ONCE)
    slurm.clock()
    job = slurm.add([["ignore_term"], RUNNING, ["hang"]])
    agent = slurm.start()
    slurm.bench.wait_for_worker_event(event="status")
    slurm.fake.scenario(life=AT_ONCE, calls={name: [AWAY] for name in ("squeue", "scontrol", "scancel")})
    job.over = True
    slurm.bench.wait_until(lambda: slurm.fake.calls("scancel"), "the agent's own try")
    slurm.fake.become("4242", "CANCELLED")
    root = slurm.bench.jobdir.root
    # while the agent writes into it: what it puts there in between keeps the directory for another round
    slurm.bench.wait_until(lambda: shutil.rmtree(root, ignore_errors=True) or not os.path.exists(root), "the removal")
    slurm.fake.scenario(life=AT_ONCE)
    said = agent.communicate(timeout=90)[1].decode()
    assert agent.returncode == 0 or f"{root}: " in said, said  # it may have met a directory that was half removed
    assert "Traceback" not in said
    assert not os.path.exists(slurm.bench.jobdir.root)
