"""What goes wrong around a cluster's job: one job for one run, the right end, and nothing of it left."""

from __future__ import annotations

import os
import signal

import pytest

LONG = {"steps": 100000, "step_seconds": 0.05}
SOME = {"steps": 60, "step_seconds": 0.05}
HELD = [{"after": 999999, "state": "RUNNING", "node": "node07"}]
AT_ONCE = [{"after": 0, "state": "RUNNING", "node": "node07"}]
AWAY = {"act": False, "rc": 1, "stderr": "slurm_load_jobs error: Socket timed out on send/recv operation\n"}
ENDED = ("CANCELLED", "FAILED")


def kill(cluster, *words):
    for word in words:
        for pid in cluster.processes(word):
            os.kill(pid, signal.SIGKILL)
    cluster.wait_until(lambda: not any(cluster.processes(word) for word in words), "their end")


def cancelled(cluster, process, run_id):
    cluster.potato("training", "cancel", run_id, check=True)
    cluster.finish(process)
    assert cluster.ended(run_id).state == "cancelled"
    assert all(job["state"] in ENDED for job in cluster.slurm_jobs().values())
    cluster.nothing_is_left()


STATES = ["connecting", "preparing", "waiting", "running", "fetching"]


@pytest.mark.sample("connecting-after", "preparing-before", "waiting-after", "running-before", "fetching-before")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", STATES)
def test_a_supervisor_killed_at_any_step_changes_nothing_about_the_end(cluster, when, state, tmp_path):
    mark = tmp_path / "struck"
    cluster.env.update(POTATO_FAULT=f"{when}:{state}", POTATO_FAULT_MARK=str(mark))
    ran = cluster.potato("training", "run", "--trainer", "test-quick")
    (run,) = cluster.runs()
    assert mark.exists(), "the fault was never reached"
    assert ran.returncode == 0, ran.stdout + ran.stderr + cluster.log(run.run_id)
    assert (run.state, run.settled) == ("succeeded", True)
    assert (cluster.places.run_dir(run.run_id) / "artifacts" / "sentiment" / "shares.json").exists()
    assert cluster.submitted() == 1
    cluster.nothing_is_left()


@pytest.mark.parametrize("life", [HELD, AT_ONCE], ids=["pending", "running"])
@pytest.mark.parametrize("trainer", ["test-slow", "test-stubborn"])
def test_cancel(cluster, life, trainer):
    cluster.fake.scenario(life=life)
    params = LONG if trainer == "test-slow" else {}
    process, run_id = cluster.train(trainer, **params)
    cluster.reaches(run_id, "running" if life is AT_ONCE else "waiting")
    cancelled(cluster, process, run_id)
    assert cluster.submitted() == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_supervisor_killed_while_cancelling_is_replaced_and_the_job_cancelled(cluster, when, tmp_path):
    mark = tmp_path / "struck"
    cluster.env.update(POTATO_FAULT=f"{when}:cancelling", POTATO_FAULT_MARK=str(mark))
    process, run_id = cluster.train("test-stubborn")
    cluster.reaches(run_id, "running")
    cancelled(cluster, process, run_id)
    assert mark.exists()


def test_everything_is_killed_while_sbatch_hangs_and_its_job_is_adopted(cluster):
    cluster.fake.scenario(life=AT_ONCE, calls={"sbatch": [{"argv": "--job-name", "hang": True}]})
    process, run_id = cluster.train("test-slow", **SOME)
    cluster.wait_until(lambda: cluster.submitted() == 1, "the job")
    process.kill()
    kill(cluster, "runtime.supervisor", "worker.agent")
    cluster.potato("training", "supervise", check=True)
    assert cluster.run(run_id).state == "succeeded", cluster.run(run_id).reason
    assert cluster.submitted() == 1
    cluster.nothing_is_left()


def test_a_submission_that_says_it_failed_is_looked_up(cluster):
    cluster.fake.scenario(life=AT_ONCE, calls={"sbatch": [{
        "argv": "--job-name", "rc": 1, "stdout": "",
        "stderr": "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"}]})
    ran = cluster.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout
    assert cluster.submitted() == 1
    cluster.nothing_is_left()


def test_a_pending_job_outlives_everything_of_ours(cluster):
    cluster.fake.scenario(life=HELD)
    process, run_id = cluster.train("test-quick")
    cluster.reaches(run_id, "waiting")
    process.kill()
    kill(cluster, "runtime.supervisor", "worker.agent")
    process = cluster.start("training", "supervise")
    cluster.wait_until(lambda: "took up this job" in cluster.log(run_id), "another agent")
    assert cluster.run(run_id).state == "waiting"
    cluster.fake.become("4242", "RUNNING")
    process.wait(90)
    assert cluster.run(run_id).state == "succeeded", cluster.run(run_id).reason
    assert cluster.submitted() == 1
    cluster.nothing_is_left()


def test_an_agent_whose_server_stays_away_cancels_its_job(cluster):
    cluster.backend(heartbeat_timeout_s=10)
    process, run_id = cluster.train("test-slow", **LONG)
    cluster.reaches(run_id, "running")
    process.kill()
    kill(cluster, "runtime.supervisor")
    cluster.wait_until(lambda: cluster.fake.job("4242")["state"] in ENDED, "the end of the job")
    cluster.wait_until(lambda: not cluster.processes(), "the end of the agent")
    cluster.potato("training", "supervise", check=True)
    run = cluster.run(run_id)
    assert run.state == "failed"
    assert "had no answer from this server for too long" in run.reason
    cluster.nothing_is_left()


def test_a_cancel_while_slurm_is_away_is_released_once_it_answers(cluster):
    """The supervisor and the agent are killed meanwhile: what is owed stays owed, and is proven."""
    process, run_id = cluster.train("test-stubborn")
    cluster.reaches(run_id, "running")
    cluster.fake.scenario(life=AT_ONCE, calls={name: [AWAY] for name in ("squeue", "scontrol", "scancel")})
    cluster.potato("training", "cancel", run_id, check=True)
    cluster.reaches(run_id, "cancelling")
    process.kill()
    kill(cluster, "runtime.supervisor", "worker.agent")
    process = cluster.start("training", "supervise")
    cluster.wait_until(lambda: cluster.run(run_id).over, "the end of the run")
    assert cluster.run(run_id).state == "cancelled"
    asked = len(cluster.fake.calls("scancel"))
    cluster.wait_until(lambda: len(cluster.fake.calls("scancel")) > asked, "another try")
    assert cluster.store().releases()
    assert cluster.fake.job("4242")["state"] == "RUNNING"
    cluster.fake.scenario(life=AT_ONCE)
    process.wait(90)
    assert cluster.fake.job("4242")["state"] in ENDED
    cluster.nothing_is_left()


def test_a_requeued_job_is_another_attempt(cluster):
    cluster.backend(requeue=True)
    cluster.fake.scenario(life=[*AT_ONCE, {"after": 8, "state": "REQUEUE"}, *AT_ONCE])
    ran = cluster.potato("training", "run", "--trainer", "test-slow", "--param", "steps=60",
                         "--param", "step_seconds=0.05")
    (run,) = cluster.runs()
    assert ran.returncode == 0, ran.stdout
    assert run.attempt == 2
    assert "SLURM job 4242 was requeued: attempt 2" in cluster.log(run.run_id)
    assert cluster.submitted() == 1
    cluster.nothing_is_left()
