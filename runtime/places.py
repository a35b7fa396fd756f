"""Where a project's training lives on the server: ``<task_dir>/training/``, with relative names only.

It is beside annotation_output and not in it, because Potato takes every folder in there for an
annotator.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

#: Files of a run directory.
JOB = "job.json"
EVENTS = "events.jsonl"
AGENT_EVENTS = "agent.jsonl"
RUN_LOG = "run.log"
AGENT_LOG = "agent.log"
BUNDLE = "bundle.tar.gz"
MANIFEST = "manifest.json"
PREDICTIONS = "predictions.jsonl"
ARTIFACTS = "artifacts"


class Places(NamedTuple):
    """The paths of one project's training."""

    task_dir: Path

    @property
    def root(self) -> Path:
        return self.task_dir / "training"

    @property
    def store(self) -> Path:
        return self.root / "store.sqlite"

    @property
    def lock(self) -> Path:
        return self.root / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "supervisor.log"

    @property
    def prelabels(self) -> Path:
        return self.root / "prelabels.jsonl"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run_dir(self, run_id: str) -> Path:
        return self.runs / run_id

    def job_dir(self, run_id: str) -> Path:
        """The job directory of a run on the local backend."""
        return self.root / "jobs" / run_id

    def prepare(self) -> None:
        """Makes the folders, for the owner's eyes only whatever the umask says."""
        from ..worker.jobdir import make_private_dir

        for folder in (self.root, self.runs, self.root / "jobs"):
            make_private_dir(str(folder))


def new_run_id() -> str:
    """A name that sorts by time and is also fit for a folder, a unix socket and a job name."""
    import secrets

    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)
