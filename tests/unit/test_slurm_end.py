"""Ends that nobody explained: a disk that is full takes the last words along."""

from __future__ import annotations

import errno
import os

import pytest
from potato_training.worker import slurm_end
from potato_training.worker.jobdir import JobDir
from potato_training.worker.slurm import Look
from potato_training.worker.slurm_record import Record

ROOM = "SLURM job 42 ended without a result: no space left in "


@pytest.fixture
def jobdir(tmp_path):
    made = JobDir(str(tmp_path / "job"))
    made.create()
    return made


def end(jobdir, code, state="FAILED", told=False):
    record = Record(jobdir, "potato-x")
    record.job_id = "42"
    trouble = slurm_end.explain(jobdir, record, Look(state, node="n1", exit="1:0"), code, told)
    return trouble and trouble.message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("code", [None, 1])
def test_a_full_disk_or_a_spent_quota(jobdir, monkeypatch, number, code):
    def full(self, name, data):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(JobDir, "write", full)
    assert end(jobdir, code) == ROOM + jobdir.root
    assert end(jobdir, 1, told=True) is None
    assert end(jobdir, None, "TIMEOUT") == "SLURM job 42 ended before the worker finished: it reached its time limit"


@pytest.mark.parametrize(("words", "hint"), [
    ("AssocMaxSubmitJobLimit; Batch job submission failed: Job violates accounting/QOS policy (job submit limit, "
     "user's size and/or time limits)", "start the run again when some have ended"),
    ("QOSMaxCpuPerUserLimit; Batch job submission failed: Job violates accounting/QOS policy (job submit limit, "
     "user's size and/or time limits)", "lower time, gres, mem or cpus_per_task, or wait"),
    ("Batch job submission failed: Requested node configuration is not available", "no node of the partition has that"),
    ("Batch job submission failed: Invalid qos specification", "mend the key of the config that it names"),
])
def test_what_a_refusal_wants_done(jobdir, words, hint):
    record = Record(jobdir, "potato-x")
    record.refused = words
    trouble = slurm_end.explain(jobdir, record, None, None, False)
    assert trouble.message == f"sbatch refused the job: {words}"
    assert hint in trouble.hint


def test_with_room_it_is_something_else_and_nothing_is_left_behind(jobdir):
    assert end(jobdir, None) == "SLURM job 42 ended before the first line of its script (exit code 1)"
    os.makedirs(jobdir.path("claim"))
    jobdir.write("claim/job", "42\n")
    assert end(jobdir, None) == "SLURM job 42 left the queue without reporting a result"
    assert end(jobdir, 1) is None
    assert end(jobdir, 1, "OUT_OF_MEMORY", told=True) is None
    assert end(jobdir, 1, "OUT_OF_MEMORY") == "SLURM job 42 ended before the worker finished: it ran out of memory"
    assert sorted(os.listdir(jobdir.root)) == ["claim"]
