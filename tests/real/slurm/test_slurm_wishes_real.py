"""What people ask of a run that is on a real Slurm: keep it, let it finish alone, stop it after a while."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

pytestmark = pytest.mark.real
LONG = {"steps": 100000, "step_seconds": 0.05}


def started(study, **params):
    process, run_id = study.train("test-slow", **params)
    study.reaches(run_id, "running")
    return process, run_id


def test_stop_and_keep(login):
    """And a variable that stands in a file on the cluster, which the prelude finds."""
    study = login(env_file="~/secrets", prelude=['[ "$GREETING" = "it\'s  me" ]'])
    study.account.put("secrets", "# mine\nGREETING=it's  me\n", 0o600)
    process, run_id = started(study, **LONG)
    study.potato("training", "cancel", run_id, "--keep", check=True)
    output, code = study.finish(process)
    assert code == 0, output + study.log(run_id)
    assert study.ended(run_id).facts["result"]["kept"] is True
    assert (study.places.run_dir(run_id) / "artifacts" / "sentiment").exists()
    study.nothing_is_left()


def test_on_disconnect_finish_goes_on_alone_and_is_fetched_later(login):
    study = login(on_disconnect="finish", heartbeat_timeout_s=3)
    process, run_id = started(study, steps=100, step_seconds=0.05)
    job_id = study.job_id(run_id)
    process.kill()
    study.wait_until(lambda: study.account.processes("worker.agent"), "the agent")
    for pid in (study.supervisor(), *study.ssh_processes(), *study.account.processes("worker.agent")):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    study.wait_until(lambda: (study.jobs / run_id / "exit_code").exists(), "the worker's end, alone")
    study.cluster.wait_job(job_id, "COMPLETED")
    study.potato("training", "supervise", check=True)
    assert study.run(run_id).state == "succeeded", study.log(run_id)
    assert (study.places.run_dir(run_id) / "artifacts" / "sentiment").exists()
    assert study.job_ids(run_id) == [job_id]
    study.nothing_is_left()


@pytest.mark.thorough("as on a host without Slurm")
def test_a_run_is_stopped_after_its_time(login):
    study = login()
    study.configure(max_wall_seconds=2)
    process, run_id = started(study, **LONG)
    output, code = study.finish(process)
    assert code == 1
    reason = "The run was stopped after 2 seconds (model_training.max_wall_seconds)"
    assert study.ended(run_id).reason == reason, output + study.log(run_id)
    study.nothing_is_left()
