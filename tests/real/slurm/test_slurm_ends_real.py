"""How Slurm itself ends a job, or starts it again, under whole runs."""

from __future__ import annotations

import re
import signal
import subprocess
import time

import pytest

pytestmark = pytest.mark.real
LONG = {"steps": 100000, "step_seconds": 0.05}


def started(study, trainer="test-slow", **params):
    process, run_id = study.train(trainer, **(params or (LONG if trainer == "test-slow" else {})))
    study.reaches(run_id, "running")
    return process, run_id, study.job_id(run_id)


def failed(study, process, run_id, why):
    output, code = study.finish(process)
    log = output + study.log(run_id)
    assert code == 1, log
    words = f"SLURM job {study.job_id(run_id)} ended before the worker finished: {why}"
    assert study.ended(run_id).reason == words, log
    assert f"failed: {words}" in log
    assert len(study.job_ids(run_id)) == 1


def test_a_run_whose_node_fails(login):
    study = login(nodelist="n1")
    process, run_id, _ = started(study, "test-stubborn")
    study.cluster.kill_daemon("n1", signal.SIGKILL)
    try:
        study.cluster.run(["scontrol", "update", "nodename=n1", "state=down", "reason=test"])
        failed(study, process, run_id, "its node failed")
        study.account.kill()    # a machine that failed takes its processes along
        study.nothing_is_left()
    finally:
        study.cluster.start_daemon("n1")
        study.cluster.run(["scontrol", "update", "nodename=n1", "state=resume"])
        study.cluster.wait_nodes()


@pytest.mark.parametrize("trainer", ["test-slow", pytest.param("test-stubborn", marks=pytest.mark.thorough(
    "a minute: Slurm looks for jobs that are over their limit every half minute"))])
def test_a_run_that_hits_its_time_limit(login, trainer):
    study = login(time="1:00:00")
    process, run_id, job_id = started(study, trainer)
    now = ["scontrol", "update", f"jobid={job_id}", "endtime=now"]      # refused in the second in which it starts
    study.wait_until(lambda: study.cluster.run(now, check=False).returncode == 0, "an end that Slurm takes")
    failed(study, process, run_id, "it reached its time limit")
    study.nothing_is_left()


def with_libraries(study):
    """scikit-learn and torch from the tests' own environment, for an interpreter of the same version."""
    study.account.with_libraries()
    probe = ["su", study.account.name, "-s", "/bin/sh", "-c", "/usr/bin/python3 -c 'import torch, transformers'"]
    done = subprocess.run(probe, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"/usr/bin/python3 of another account cannot use this environment's torch: {done.stderr[-200:]}")
    return study


@pytest.mark.slow
@pytest.mark.thorough("three imports of torch")
def test_a_requeued_job_goes_on_from_its_last_whole_checkpoint(login, tiny_bert):
    """And predicts what it would have predicted undisturbed."""
    study = with_libraries(login(requeue=True))
    asked = {"model": tiny_bert, "epochs": 12, "batch_size": 2, "early_stopping": 0, "checkpoint_minutes": 0}
    process, run_id = study.train("hf-text-classification", **asked)
    folder = study.jobs / run_id / "checkpoints"
    study.wait_until(lambda: len(list(folder.rglob("COMPLETE"))) > 1, "checkpoints", patience=300)
    job_id = study.job_id(run_id)
    study.cluster.run(["scontrol", "requeue", job_id])
    study.wait_until(lambda: study.run(run_id).attempt == 2, "the second attempt")
    study.wait_until(lambda: study.cluster.hurry(job_id) and process.poll() is not None, "the end", patience=300)
    output, code = study.finish(process)
    assert code == 0, output + study.log(run_id)
    assert "resumed from step " in study.log(run_id)
    assert study.ended(run_id).facts["result"]["attempt"] == 2
    process, whole = study.train("hf-text-classification", **asked)
    study.wait_until(lambda: process.poll() is not None, "the undisturbed run", patience=300)
    assert study.ended(whole).state == "succeeded", study.log(whole)
    found = [(study.places.run_dir(name) / "predictions.jsonl").read_text() for name in (run_id, whole)]
    assert found[0] == found[1]
    study.nothing_is_left()


@pytest.mark.thorough("as a requeue, by another job")
def test_a_preempted_job_that_comes_back(login):
    study = login(partition="scavenge", requeue=True)
    process, run_id, job_id = started(study, steps=40, step_seconds=0.05)
    folder = study.cluster.fresh()
    (folder / "urgent.sh").write_text("#!/bin/bash\nexec sleep 1000\n")
    urgent = study.cluster.sbatch(folder / "urgent.sh", "--partition=urgent", "--exclusive")
    study.wait_until(lambda: study.run(run_id).attempt == 2, "the second attempt")
    study.wait_until(lambda: study.run(run_id).state == "waiting", "its waiting")
    study.cluster.run(["scancel", urgent])
    study.wait_until(lambda: study.cluster.hurry(job_id) and process.poll() is not None, "the end")
    output, code = study.finish(process)
    assert code == 0, output + study.log(run_id)
    assert study.ended(run_id).facts["result"]["attempt"] == 2
    assert study.job_ids(run_id) == [job_id]
    study.nothing_is_left()


@pytest.mark.thorough("eight seconds of silence")
def test_a_job_that_is_suspended_for_longer_than_the_heartbeat(login):
    """It says nothing meanwhile, and nobody holds that against it."""
    study = login(heartbeat_timeout_s=4)
    process, run_id, job_id = started(study, steps=40, step_seconds=0.05)
    study.cluster.run(["scontrol", "suspend", job_id])
    study.wait_until(lambda: f"SLURM job {job_id}: SUSPENDED" in study.log(run_id), "the word about it")
    until = time.monotonic() + 8
    study.wait_until(lambda: time.monotonic() > until or study.run(run_id).over, "eight seconds")
    study.cluster.run(["scontrol", "resume", job_id])
    output, code = study.finish(process)
    assert code == 0, output + study.log(run_id)
    study.ended(run_id)
    study.nothing_is_left()


@pytest.mark.thorough("as a requeue, with another reason")
def test_a_job_that_is_held_after_a_requeue(login):
    study = login(requeue=True)
    process, run_id, job_id = started(study, steps=40, step_seconds=0.05)
    study.cluster.run(["scontrol", "requeuehold", job_id])
    study.wait_until(lambda: study.run(run_id).attempt == 2 and study.run(run_id).state == "waiting", "its waiting")
    study.wait_until(lambda: re.search(r": \w+ \(.*held", study.log(run_id), re.IGNORECASE), "why it waits")
    assert f"`scontrol release {job_id}` lets it go on" in study.log(run_id)
    study.cluster.run(["scontrol", "release", job_id])
    study.wait_until(lambda: study.cluster.hurry(job_id) and process.poll() is not None, "the end")
    output, code = study.finish(process)
    assert code == 0, output + study.log(run_id)
    study.ended(run_id)
    study.nothing_is_left()
