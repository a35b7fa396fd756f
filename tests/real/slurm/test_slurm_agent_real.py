"""The agent's jobs on a real Slurm: one job for a run whatever dies, and nothing of it left at the end."""

from __future__ import annotations

import contextlib
import signal
import time

import pytest

pytestmark = pytest.mark.real
RUNNING = ["event", "status", {"state": "running", "host": "n"}]
HANG = [["heed_term"], RUNNING, ["hang"]]
DEAF = [["ignore_term"], RUNNING, ["hang"]]
GOOD = [RUNNING, ["wait_file", "go"], ["predictions", "p\n"], ["exit", 0]]


def jobs_named(slurm):
    """Every job of this name that the controller has, ended ones included."""
    shown = slurm.run(["squeue", "-h", "-t", "all", "-n", "potato-" + slurm.run_id, "-o", "%i"], check=False).stdout
    return shown.split()


def start(slurm, *plans, running=True, **fields):
    slurm.add(*plans, **fields)
    agent = slurm.start()
    if running:
        slurm.bench.wait_for_worker_event(event="status")
    return agent


def one_job(slurm):
    """The one job that this test has made; it is over."""
    job_id = slurm.record["job_id"]
    slurm.cluster.wait_empty(job_id)    # the worker ends before its shell does
    assert jobs_named(slurm) == [job_id]
    return job_id


def ended(slurm, agent):
    assert agent.wait(120) == 0, agent.stderr.read().decode()
    return slurm.bench.job.result


def good(slurm, agent):
    slurm.bench.jobdir.touch("go")
    result = ended(slurm, agent)
    assert (result["exit_code"], result["reason"]) == (0, "finished"), slurm.error()
    assert slurm.bench.job.predictions == b"p\n"
    one_job(slurm)


@contextlib.contextmanager
def controller_stopped(cluster):
    daemon = cluster.daemons["slurmctld"]
    daemon.send_signal(signal.SIGSTOP)
    try:
        yield lambda: daemon.send_signal(signal.SIGCONT)
    finally:
        daemon.send_signal(signal.SIGCONT)


# --- runs ------------------------------------------------------------------------------------------------


def test_a_run(slurm):
    agent = start(slurm, GOOD, keys={"gres": "gpu:1", "time": "5:00"})
    good(slurm, agent)
    job_id = slurm.record["job_id"]
    steps = slurm.steps()
    assert f"Submitted SLURM job {job_id} (--gres=gpu:1 --time=5:00)" in steps
    assert any(s.startswith(f"SLURM job {job_id}: RUNNING on n") for s in steps)
    assert not slurm.messages("warning")


def test_a_requeued_job_is_another_attempt(slurm):
    agent = start(slurm, HANG, GOOD, keys={"requeue": True})
    job_id = slurm.record["job_id"]
    slurm.run(["scontrol", "requeue", job_id])
    warning = f"SLURM job {job_id} was requeued: attempt 2"
    slurm.bench.wait_until(lambda: warning in slurm.messages("warning"), "the requeue")
    slurm.bench.jobdir.touch("go")
    slurm.bench.wait_until(
        lambda: slurm.cluster.hurry(job_id) and any(e["attempt"] == 2 for e in slurm.bench.job.worker_events),
        "the second attempt")
    good(slurm, agent)


def test_a_job_that_slurm_forgets_at_once(slurm):
    """Nothing of the end is asked of Slurm: the exit code is enough."""
    agent = start(slurm, GOOD, poll_interval_s=60)
    good(slurm, agent)
    assert slurm.record["calls"]["squeue"] == 1
    assert "scontrol" not in slurm.record["calls"]


# --- ends ------------------------------------------------------------------------------------------------


def check_why(slurm, agent, why):
    result = ended(slurm, agent)
    job_id = one_job(slurm)
    assert result["reason"] == slurm.error() == f"SLURM job {job_id} ended before the worker finished: {why}"


@pytest.mark.parametrize("plan", [HANG, DEAF], ids=["heeding", "deaf"])
def test_a_stranger_cancels_it(slurm, plan):
    agent = start(slurm, plan)
    slurm.run(["scancel", slurm.record["job_id"]])
    check_why(slurm, agent, "it was cancelled from outside")


def test_a_stranger_cancels_it_while_it_waits(slurm):
    agent = start(slurm, HANG, running=False, keys={"sbatch_args": ["--hold"]}, settle_s=100)
    slurm.run(["scancel", slurm.wait_for_id()])
    check_why(slurm, agent, "it was cancelled from outside")


@pytest.mark.thorough("Slurm's shortest limit is a minute")
def test_the_time_limit(slurm):
    agent = start(slurm, HANG, keys={"time": "1"})
    assert agent.wait(240) == 0
    check_why(slurm, agent, "it reached its time limit")


def test_preemption(slurm):
    agent = start(slurm, HANG, keys={"partition": "scavenge"})
    folder = slurm.cluster.fresh()
    (folder / "urgent.sh").write_text("#!/bin/bash\nsleep 100\n")
    slurm.cluster.sbatch(folder / "urgent.sh", "--partition=urgent", "--exclusive")
    check_why(slurm, agent, "it was preempted")


def test_its_node_fails(slurm):
    agent = start(slurm, DEAF, keys={"nodelist": "n1"}, settle_s=3)
    slurm.cluster.kill_daemon("n1", signal.SIGKILL)
    try:
        slurm.run(["scontrol", "update", "nodename=n1", "state=down", "reason=test"])
        result = ended(slurm, agent)
        assert result["reason"].endswith("ended before the worker finished: its node failed")
    finally:
        slurm.cluster.start_daemon("n1")
        slurm.run(["scontrol", "update", "nodename=n1", "state=resume"])
        slurm.cluster.wait_nodes()


def test_a_refusal(slurm):
    slurm.add(HANG, keys={"partition": "nope"})
    ended(slurm, slurm.start())
    assert slurm.error() == ("sbatch refused the job: invalid partition specified: nope; "
                             "Batch job submission failed: Invalid partition name specified")


# --- cancelling --------------------------------------------------------------------------------------


def cancelled(slurm, agent):
    slurm.bench.job.cancel = True
    result = ended(slurm, agent)
    assert result["reason"] == "cancelled"
    # it was proven before it was reported
    assert not slurm.run(["squeue", "-h", "-j", slurm.record["job_id"]], check=False).stdout.strip()
    one_job(slurm)
    return result


def test_cancel_while_pending(slurm):
    agent = start(slurm, HANG, running=False, keys={"sbatch_args": ["--hold"]})
    slurm.wait_for_id()
    cancelled(slurm, agent)
    assert slurm.record["calls"]["scancel"] == 1


def test_cancel_while_running(slurm):
    assert cancelled(slurm, start(slurm, HANG))["exit_code"] == 4


def test_cancel_a_worker_that_does_not_listen(slurm):
    assert cancelled(slurm, start(slurm, DEAF, grace_seconds=1))["exit_code"] in (None, 137)


def test_cancel_while_the_controller_is_away(slurm):
    agent = start(slurm, DEAF, grace_seconds=1)
    with controller_stopped(slurm.cluster) as go_on:
        slurm.bench.job.cancel = True
        slurm.bench.wait_until(lambda: any("cannot reach Slurm" in s for s in slurm.steps()), "the weather")
        assert agent.poll() is None
        go_on()
        cancelled(slurm, agent)


@pytest.mark.thorough("eighty seconds of waiting")
def test_cancel_during_eighty_seconds_without_a_controller(slurm):
    agent = start(slurm, DEAF, grace_seconds=2)
    with controller_stopped(slurm.cluster):
        slurm.bench.job.cancel = True
        until = time.monotonic() + 80
        slurm.bench.wait_until(lambda: time.monotonic() > until or agent.poll() is not None, "80 s")
        assert agent.poll() is None
    cancelled(slurm, agent)


# --- the controller, and agents that die ---------------------------------------------------------------


def test_the_controller_is_stopped_while_sbatch_asks_it(slurm):
    """sbatch says that it failed, and the job is there afterwards: found, and not made twice."""
    with controller_stopped(slurm.cluster) as go_on:
        slurm.add(GOOD, doubt_s=60)
        agent = slurm.start()
        slurm.bench.wait_until(lambda: any("looking whether" in m for m in slurm.messages()), "the doubt")
        go_on()
    slurm.wait_for_id()
    good(slurm, agent)
    assert slurm.record["tries"] == 1


def test_the_controller_is_stopped_while_the_job_runs(slurm):
    agent = start(slurm, GOOD)
    with controller_stopped(slurm.cluster):
        slurm.bench.wait_until(lambda: any("cannot reach Slurm" in s for s in slurm.steps()), "the weather")
    slurm.bench.wait_until(lambda: "Slurm answers again" in slurm.messages(), "fair weather")
    good(slurm, agent)


def test_the_controller_is_restarted(slurm):
    agent = start(slurm, GOOD)
    slurm.cluster.kill_daemon("slurmctld", signal.SIGTERM)
    slurm.bench.wait_until(lambda: any("cannot reach Slurm" in s for s in slurm.steps()), "the weather")
    slurm.cluster.start_daemon("slurmctld")
    slurm.bench.wait_until(lambda: "Slurm answers again" in slurm.messages(), "fair weather")
    good(slurm, agent)


def kill(agent):
    agent.kill()
    agent.wait()


@pytest.mark.parametrize("when", ["pending", "running", "ended"])
def test_an_agent_is_killed_and_another_takes_the_job(slurm, when):
    keys = {"sbatch_args": ["--hold"]} if when == "pending" else {}
    agent = start(slurm, GOOD, running=when != "pending", keys=keys)
    job_id = slurm.wait_for_id()
    if when == "ended":
        agent.send_signal(signal.SIGSTOP)
        slurm.bench.jobdir.touch("go")
        slurm.bench.wait_until(lambda: slurm.bench.jobdir.read("exit_code"), "the exit code")
    kill(agent)
    if when == "pending":
        slurm.run(["scontrol", "release", job_id])
    good(slurm, slurm.start())
    assert slurm.record["job_id"] == job_id


def test_an_agent_is_killed_while_sbatch_waits_for_a_stopped_controller(slurm):
    with controller_stopped(slurm.cluster):
        slurm.add(GOOD, doubt_s=5)
        agent = slurm.start()
        slurm.bench.wait_until(lambda: slurm.bench.jobdir.read_json("sbatch.json"), "sbatch")
        kill(agent)
        agent = slurm.start()
    slurm.wait_for_id()
    good(slurm, agent)


def test_an_agent_is_killed_while_cancelling(slurm):
    agent = start(slurm, DEAF, grace_seconds=3)
    slurm.bench.job.cancel = True
    slurm.bench.wait_until(lambda: slurm.bench.jobdir.has("stop.json"), "the wish")
    kill(agent)
    cancelled(slurm, slurm.start())
