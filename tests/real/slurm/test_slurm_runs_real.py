"""Whole runs on a real Slurm, through a real sshd, as a normal user."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.real


def test_a_run(login):
    study = login(gres="gpu:1", time="5")
    ran = study.potato("training", "run", "--trainer", "test-quick")
    (run,) = study.runs()
    log = study.log(run.run_id)
    assert ran.returncode == 0, ran.stdout + ran.stderr + log + study.places.supervisor_log.read_text()
    assert (run.state, run.settled) == ("succeeded", True)
    (job_id,) = study.job_ids(run.run_id)
    assert f"Submitted SLURM job {job_id} (--gres=gpu:1 --time=5)" in log
    assert f"SLURM job {job_id}: RUNNING on n" in log or "worker on " in log
    files = study.places.run_dir(run.run_id) / "artifacts"
    assert json.loads((files / "sentiment" / "shares.json").read_text())["labels"]
    study.nothing_is_left()
