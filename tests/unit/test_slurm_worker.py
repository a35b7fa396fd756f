"""The agent's handle of a SLURM job, with the scheduler's commands as one-line programs."""

from __future__ import annotations

from types import SimpleNamespace

from potato_training.worker.jobdir import JobDir
from potato_training.worker.slurm_record import Record
from potato_training.worker.slurm_worker import Bounds, SlurmWorker


def test_an_exit_code_written_after_the_last_look_is_not_lost_when_the_job_is_gone(tmp_path, monkeypatch, wait_until):
    """The clock stands still: after its first look the agent is never due for a second one."""
    for name in ("squeue", "scancel"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "scontrol").write_text(
        f"#!/bin/sh\necho 4 > {tmp_path}/job/exit_code\necho JobId=77 JobName=ours JobState=CANCELLED ExitCode=4:0\n")
    for name in ("squeue", "scancel", "scontrol"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    jobdir = JobDir(str(tmp_path / "job"))
    jobdir.create()
    record = Record(jobdir, "ours")
    record.job_id, record.ran = "77", True
    worker = SlurmWorker(jobdir, SimpleNamespace(attempt=1, poll_interval_s=30), record, Bounds(), clock=lambda: 1000.0)
    worker.ask_to_stop()
    wait_until(lambda: not worker.alive(), "the end")
    worker.close()
    assert worker.exit_code() == 4
