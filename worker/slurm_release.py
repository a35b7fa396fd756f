"""Letting go of a Slurm job whose agent is gone: cancelled, and seen to have left the queue."""

from __future__ import annotations

import time
from typing import Callable

from . import protocol
from .agent_link import read_attach, write_attach
from .agent_message import BadJob, Job
from .agent_stop import Stop
from .jobdir import JobDir
from .slurm_launch import SlurmLauncher

#: Beyond the grace: KillWait, lookups of a job whose id nobody knows, and a controller that is slow to answer.
PROOF_S = 240.0


def send_away(jobdir: JobDir) -> None:
    """An agent on another login node finds a later generation, and goes without touching anything."""
    attach = read_attach(jobdir)
    write_attach(jobdir, (attach[0] if attach else 0) + 1)


def release(
    jobdir: JobDir, patience_s: float, *, proof_s: float = PROOF_S, clock: Callable[[], float] = time.monotonic
) -> str:
    """"" when the job is proven gone, else why that is not known. Takes at most ``patience_s + proof_s``."""
    try:
        job = Job(jobdir.read_json(protocol.JOB_FILE) or {})
    except BadJob as error:
        return "job.json cannot be read: %s" % error
    worker = SlurmLauncher().find(jobdir, job)
    if worker is None:
        return ""
    began = clock()
    stop = Stop(jobdir, clock)
    stop.ask(protocol.REASON_CANCELLED, patience_s)
    why = ""
    stop.tick(worker)  # it must know before it looks: nothing is to be submitted any more
    while worker.alive():
        stop.tick(worker)
        if clock() - began >= patience_s + proof_s:
            worker.close()
            return "nobody can say whether SLURM job %s is gone%s" % (worker.job_id or "?", why and ": " + why)
        for event in worker.take_news():
            if event["event"] == "log" and event["msg"].startswith("Slurm: "):
                why = event["msg"][len("Slurm: "):]
        time.sleep(0.05)
    worker.close()
    return ""
