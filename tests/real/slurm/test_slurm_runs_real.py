"""Whole runs on a real Slurm, through a real sshd, as a normal user."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
LONG = {"steps": 100000, "step_seconds": 0.05}
#: So long the controller stays away; POTATO_TEST_LAG=1 asks for the long absence.
AWAY_S = 80 if "POTATO_TEST_LAG" in os.environ else 1
SOME = {"steps": 40, "step_seconds": 0.05}


def said(study, run_id, ran=None):
    return (ran.stdout + ran.stderr if ran else "") + study.log(run_id) + study.places.supervisor_log.read_text()


def trained(study, trainer="test-quick", *more):
    ran = study.potato("training", "run", "--trainer", trainer, *more, timeout=400)
    (run, *_) = study.runs()
    assert ran.returncode == 0, said(study, run.run_id, ran)
    assert (run.state, run.settled) == ("succeeded", True)
    assert len(study.job_ids(run.run_id)) == 1
    study.nothing_is_left()
    return run


def cancelled(study, process, run_id):
    study.potato("training", "cancel", run_id, check=True)
    study.finish(process)
    assert study.ended(run_id).state == "cancelled"
    assert len(study.job_ids(run_id)) == 1
    study.nothing_is_left()


@contextlib.contextmanager
def controller_stopped(cluster):
    daemon = cluster.daemons["slurmctld"]
    daemon.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        daemon.send_signal(signal.SIGCONT)


# --- runs ------------------------------------------------------------------------------------------------


def test_a_run_under_variables_that_are_set_to_harm(login):
    study = login(gres="gpu:1", time="5")
    harm = {"SBATCH_PARTITION": "nope", "SBATCH_ARRAY_INX": "0-2", "SQUEUE_USERS": "nobody",
            "SCANCEL_PARTITION": "short", "SCANCEL_STATE": "SUSPENDED", "SLURM_CLUSTERS": "x",
            # these are for the job, whose login shell reads the same file
            "SLURM_JOB_ID": "777", "SLURM_JOBID": "777", "SLURM_RESTART_COUNT": "3", "SLURM_SUBMIT_DIR": "/",
            "CUDA_VISIBLE_DEVICES": "7"}
    study.account.put(".bashrc", "".join(f"export {name}={value}\n" for name, value in harm.items()))
    run = trained(study)
    log = study.log(run.run_id)
    (job_id,) = study.job_ids(run.run_id)
    assert f"Submitted SLURM job {job_id} (--gres=gpu:1 --time=5)" in log
    (node,) = set(re.findall(r"RUNNING on (\S+)", log))
    assert f"worker on {node}, " in log and "was requeued" not in log
    assert run.facts["machine"]["host"] == run.facts["machine"]["node"] == node
    assert run.attempt == 1
    files = study.places.run_dir(run.run_id) / "artifacts"
    assert json.loads((files / "sentiment" / "shares.json").read_text())["labels"]
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    cancelled(study, process, run_id)


def with_libraries(study):
    """scikit-learn and torch from the tests' own environment, for an interpreter of the same version."""
    account = study.account
    account.with_libraries()
    done = subprocess.run(["su", account.name, "-s", "/bin/sh", "-c", "/usr/bin/python3 -c 'import sklearn, skops'"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"/usr/bin/python3 of another account cannot use this environment's scikit-learn: "
                    f"{done.stderr.strip()[-200:]}")
    return study


TUTORIAL = {"description": "The department's cluster", "gres": "gpu:1", "partition": "short", "time": "0:20:00",
            "cpus_per_task": 2, "mem": "1G", "prelude": ["export POTATO_TUTORIAL=yes"], "max_artifact_mb": 500}


def test_the_tutorials_cluster_with_sklearn_text(login):
    study = with_libraries(login(**TUTORIAL))
    ran = study.potato("training", "check", "gpu-server", "--trainer", "sklearn-text")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "sbatch takes the job: to start at " in ran.stdout
    assert not study.cluster.run(["squeue", "-h", "-t", "all", "-n", "potato-check"]).stdout
    run = trained(study, "sklearn-text")
    assert run.facts["software"]["scikit-learn"]
    assert run.facts["result"]["metrics"]
    assert (study.places.run_dir(run.run_id) / "artifacts" / "sentiment" / "potato.json").exists()


@pytest.mark.slow
def test_the_tutorials_cluster_with_hf_text_classification(login, tiny_bert):
    study = with_libraries(login(**{**TUTORIAL, "mem": "3G"}))
    assert study.potato("training", "check", "gpu-server").returncode == 0
    run = trained(study, "hf-text-classification", "--param", f"model={tiny_bert}", "--param", "epochs=1")
    assert run.facts["software"]["torch"]
    assert list((study.places.run_dir(run.run_id) / "artifacts" / "sentiment").rglob("*.safetensors"))


def test_what_check_says_of_a_time_that_the_partition_never_allows(login):
    study = login(partition="short", time="2:00:00")
    ran = study.potato("training", "check", "gpu-server")
    assert ran.returncode == 1
    assert "time 2:00:00 is above the MaxTime of partition short, 00:30:00: the job would wait for ever" in ran.stdout
    study.backend(partition="nope", time="5")
    ran = study.potato("training", "check", "gpu-server")
    assert ran.returncode == 1
    assert "sbatch refuses the job: invalid partition specified: nope" in ran.stdout


# --- ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keys", "reason"), [
    ({"prelude": ["false"]}, "prelude failed (exit 1): false"),
    ({"job_python": "/no/such/python"}, "/no/such/python was not found on n"),
], ids=["prelude", "python"])
def test_a_job_that_does_not_get_as_far_as_its_worker(login, keys, reason):
    study = login(**keys)
    ran = study.potato("training", "run", "--trainer", "test-quick")
    (run,) = study.runs()
    assert ran.returncode == 1
    assert reason in run.reason, said(study, run.run_id, ran)
    study.ended(run.run_id)
    study.nothing_is_left()


def test_a_stranger_cancels_it(login):
    study = login()
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    job_id = study.job_id(run_id)
    study.cluster.run(["scancel", job_id])
    study.finish(process)
    words = f"SLURM job {job_id} ended before the worker finished: it was cancelled from outside"
    assert study.ended(run_id).reason == words
    study.nothing_is_left()


@pytest.mark.parametrize("trainer", ["test-slow", "test-stubborn"])
def test_cancel(login, trainer):
    study = login()
    study.configure(grace_seconds=2)
    process, run_id = study.train(trainer, **(LONG if trainer == "test-slow" else {}))
    study.reaches(run_id, "running")
    cancelled(study, process, run_id)


def test_the_token_is_found_nowhere_on_the_cluster(login):
    study = login()
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    job = study.jobs / run_id
    token = json.loads((job / "attach.json").read_text())["token"].encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        for what in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                assert token not in Path(f"/proc/{name}/{what}").read_bytes(), (name, what)
    places = (study.root, job, study.cluster.root)
    files = [path for place in places for path in place.rglob("*") if path.is_file() and path.name != "attach.json"]
    assert len(files) > 30
    for path in files:
        with contextlib.suppress(OSError):
            assert token not in path.read_bytes(), path
    shown = study.cluster.run(["scontrol", "show", "job", study.job_id(run_id)]).stdout
    assert token.decode() not in shown
    for path in (job, *job.rglob("*")):
        assert path.is_symlink() or path.lstat().st_mode & 0o077 == 0, path
    cancelled(study, process, run_id)


def test_cancel_while_pending(login):
    study = login(sbatch_args=["--hold"])
    process, run_id = study.train("test-quick")
    study.reaches(run_id, "waiting")
    cancelled(study, process, run_id)


# --- the controller is away, and we are killed -----------------------------------------------------------


def test_a_submission_to_a_stopped_controller_makes_one_job(login):
    study = login()
    with controller_stopped(study.cluster):
        process, run_id = study.train("test-quick")
        study.wait_until(lambda: "looking whether there is a job" in study.log(run_id), "the doubt")
    output, code = study.finish(process)
    assert code == 0, output + said(study, run_id)
    assert len(study.job_ids(run_id)) == 1
    study.ended(run_id)
    study.nothing_is_left()


def test_a_cancel_at_a_stopped_controller_with_the_supervisor_killed_is_released(login):
    study = login()
    study.configure(grace_seconds=2)
    process, run_id = study.train("test-stubborn")
    study.reaches(run_id, "running")
    job_id = study.job_id(run_id)
    with controller_stopped(study.cluster):
        study.potato("training", "cancel", run_id, check=True)
        study.reaches(run_id, "cancelling")
        process.kill()
        os.kill(study.supervisor(), signal.SIGKILL)
        process = study.start("training", "supervise")
        study.wait_until(lambda: study.run(run_id).over, "the end of the run")
        until = time.monotonic() + AWAY_S
        study.wait_until(lambda: time.monotonic() > until, "the controller's absence", patience=AWAY_S + 60)
        assert study.store().releases()
    process.wait(300)
    assert study.run(run_id).state == "cancelled"
    assert study.cluster.job(job_id).get("JobState") in (None, "CANCELLED", "FAILED")
    study.nothing_is_left()


@pytest.mark.parametrize("fault", ["after:waiting", "before:fetching"])
def test_a_supervisor_killed_at_a_step_changes_nothing_about_the_end(login, fault, tmp_path):
    study = login()
    mark = tmp_path / "struck"
    study.env.update(POTATO_FAULT=fault, POTATO_FAULT_MARK=str(mark))
    trained(study)
    assert mark.exists(), "the fault was never reached"


def test_a_killed_ssh_is_made_again_and_the_job_goes_on(login):
    study = login()
    process, run_id = study.train("test-slow", **SOME)
    study.reaches(run_id, "waiting", "running")
    for pid in study.ssh_processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    output, code = study.finish(process)
    assert code == 0, output + said(study, run_id)
    assert "connected again after" in output
    assert len(study.job_ids(run_id)) == 1
    study.ended(run_id)
    study.nothing_is_left()


def test_a_server_that_stays_away_costs_no_allocation(login):
    study = login(heartbeat_timeout_s=10)
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    job_id = study.job_id(run_id)
    process.kill()
    for pid in (study.supervisor(), *study.ssh_processes()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    over = (None, "CANCELLED", "FAILED")
    study.wait_until(lambda: study.cluster.job(job_id).get("JobState") in over, "the end of the job")
    study.wait_until(lambda: not study.account.processes("potato_training"), "the end of all processes there")
    study.potato("training", "supervise", check=True)
    assert study.run(run_id).state == "failed"
    study.nothing_is_left()


def test_a_requeued_job_is_another_attempt(login):
    study = login(requeue=True)
    process, run_id = study.train("test-slow", **SOME)
    study.reaches(run_id, "running")
    job_id = study.job_id(run_id)
    study.cluster.run(["scontrol", "requeue", job_id])
    study.wait_until(lambda: study.run(run_id).attempt == 2, "the second attempt")
    study.wait_until(lambda: study.cluster.hurry(job_id) and process.poll() is not None, "the end")
    output, code = study.finish(process)
    assert code == 0, output + said(study, run_id)
    assert study.run(run_id).facts["result"]["attempt"] == 2
    study.ended(run_id)
    study.nothing_is_left()
