"""How an agent starts its worker. This machine's way is here; a scheduler's has the same two verbs."""

from __future__ import annotations

import os
import sys
from typing import List, Optional, Sequence

from . import protocol
from .agent_env import lay_code, worker_environment
from .agent_gpu import NoCard, take_card
from .agent_message import Job
from .agent_worker import LocalWorker, StartFailed, WorkerHandle, find_worker, start_worker
from .jobdir import JobDir


class Launcher:
    """Starts workers and finds those that an earlier agent started. Both may raise StartFailed."""

    notes: Sequence[str] = ()  #: what the run log should say of a start

    def start(self, jobdir: JobDir, job: Job) -> WorkerHandle:
        raise NotImplementedError

    def find(self, jobdir: JobDir, job: Job) -> Optional[WorkerHandle]:
        """None when no worker was ever started in this job directory."""
        raise NotImplementedError


class JobLauncher(Launcher):
    """The way that the job names: through its scheduler, else beside the agent by ``local``."""

    def __init__(self, local: Launcher):
        self._local = local
        self.notes: Sequence[str] = ()

    def start(self, jobdir: JobDir, job: Job) -> WorkerHandle:
        way = self._way(job)
        worker = way.start(jobdir, job)
        self.notes = way.notes
        return worker

    def find(self, jobdir: JobDir, job: Job) -> Optional[WorkerHandle]:
        return self._way(job).find(jobdir, job)

    def _way(self, job: Job) -> Launcher:
        name = (job.scheduler or {}).get("name")
        if name is None:
            return self._local
        if name == "slurm":
            from .slurm_launch import SlurmLauncher  # others need not pay for it

            return SlurmLauncher()
        raise StartFailed("this agent knows no scheduler called %.100s" % name)


class LocalLauncher(Launcher):
    """The worker as a process beside the agent.

    ``python`` overrides the job's interpreter; ``trusted`` is False where the server may say what is to be
    trained on this machine, and not what is to be executed on it (an agent backend). ``gpus``: UUIDs of
    the cards that would do, of which the worker gets the one with most free memory that nobody has taken.
    """

    def __init__(self, python: Optional[str] = None, trusted: bool = True, gpus: Sequence[str] = ()):
        self._python = python
        self._trusted = trusted
        self._gpus = gpus
        self.notes: List[str] = []

    def start(self, jobdir: JobDir, job: Job) -> LocalWorker:
        python = self._python or (job.python if self._trusted else None) or sys.executable
        lock: Optional[int] = None
        try:
            environment = worker_environment(os.environ, job.env, lay_code(jobdir), trusted=self._trusted)
            if self._gpus and "CUDA_VISIBLE_DEVICES" not in environment:
                card, lock = take_card(self._gpus, float(os.environ.get("POTATO_TRAINING_MIN_FREE_GPU_MB") or 0))
                environment["CUDA_VISIBLE_DEVICES"] = card.uuid
                self.notes.append("the worker gets %s" % card)
            return start_worker(jobdir, worker_command(python), environment, keep=() if lock is None else (lock,))
        except NoCard as error:
            raise StartFailed(str(error)) from None
        except OSError as error:
            raise StartFailed("the worker could not be started in %s: %s" % (jobdir.root, error.strerror)) from None
        finally:
            if lock is not None:
                os.close(lock)  # the worker has it now, for its life

    def find(self, jobdir: JobDir, job: Job) -> Optional[LocalWorker]:
        return find_worker(jobdir)


def worker_command(python: str) -> List[str]:
    return [
        python, "-m", "potato_training.worker", "--spec", protocol.SPEC_FILE,
        "--exit-code-file", protocol.EXIT_CODE_FILE,
    ]
