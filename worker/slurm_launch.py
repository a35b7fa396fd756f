"""Starting a worker through Slurm: the job directory is made ready, the rest is the worker's own to do."""

from __future__ import annotations

from typing import List, Optional

from . import protocol, slurm
from .agent_env import lay_code
from .agent_launch import Launcher
from .agent_message import Job
from .agent_worker import StartFailed
from .jobdir import JobDir, hostname
from .slurm_call import has_program
from .slurm_end import NO_SBATCH, NO_SBATCH_HINT
from .slurm_record import Record
from .slurm_worker import Bounds, SlurmWorker


class SlurmLauncher(Launcher):
    """``script``: job.sh of this machine's own making. The job then says nothing about the scheduler that counts."""

    def __init__(self, script: Optional[str] = None, poll_interval_s: Optional[float] = None):
        self._script = script
        self._poll_interval_s = poll_interval_s
        self.notes: List[str] = []

    def start(self, jobdir: JobDir, job: Job) -> SlurmWorker:
        script = self._script or job.job_script
        if not script:
            raise StartFailed("the job has no script for Slurm")
        for program in ("sbatch", "squeue", "scancel"):
            if not has_program(program):
                words = NO_SBATCH.replace("sbatch", program, 1)
                raise StartFailed("%s %s" % (hostname(), words), NO_SBATCH_HINT)
        try:
            lay_code(jobdir)
            jobdir.write_json(protocol.SPEC_FILE, _spec(job))
            jobdir.write(slurm.JOB_SCRIPT, script)
            jobdir.write(protocol.LEASE_FILE, "new\n")
            record = Record(jobdir, "potato-" + job.run_id)
            record.write()
        except OSError as error:
            raise StartFailed("the job could not be laid down in %s: %s" % (jobdir.root, error.strerror)) from None
        return self._worker(jobdir, job, record)

    def find(self, jobdir: JobDir, job: Job) -> Optional[SlurmWorker]:
        record = Record.read(jobdir)
        return None if record is None else self._worker(jobdir, job, record)

    def _worker(self, jobdir: JobDir, job: Job, record: Record) -> SlurmWorker:
        if self._poll_interval_s is not None:
            job.poll_interval_s = self._poll_interval_s
        scheduler = {} if self._script else job.scheduler or {}
        cluster = scheduler.get("cluster")
        return SlurmWorker(jobdir, job, record, Bounds.of(scheduler), cluster if isinstance(cluster, str) else "")


def _spec(job: Job) -> "dict[str, object]":
    """Inside a job stdin says nothing of the agent; its lease does, unless the worker is to finish alone."""
    spec = job.spec_to_write()
    given = spec.get("orphan")
    lease_s = given.get("lease_s") if isinstance(given, dict) else None
    if lease_s is None and not job.finish_alone:
        lease_s = job.give_up_s
    spec["orphan"] = {"stdin": False, "lease_s": None if job.finish_alone else lease_s}
    return spec
