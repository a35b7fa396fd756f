"""Where a project's training lives on the server: ``<task_dir>/training/``, with relative names only.

It is beside annotation_output and not in it, because Potato takes every folder in there for an
annotator.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from ..schema.errors import UserError

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


_ROOM = "training runs and their models are kept there: it must be a directory that you may write to"


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

    def manifest(self, run_id: str) -> dict[str, Any]:
        """The manifest of a run's bundle; empty when it is gone, or not written yet."""
        import json

        try:
            found = json.loads((self.run_dir(run_id) / MANIFEST).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def prepare(self) -> None:
        """Makes the folders, for the owner's eyes only whatever the umask says."""
        from ..worker.jobdir import make_private_dir

        self.check()
        try:
            for folder in (self.root, self.runs, self.root / "jobs"):
                if not folder.is_symlink():  # where somebody made a link, its end is his to open or close
                    make_private_dir(str(folder))
        except OSError as error:
            raise UserError(f"{self.root} cannot be used: {error.strerror or error}", _ROOM) from None

    def check(self) -> None:
        """Raises UserError when there is no such project, or something else stands in the way of ``training``."""
        if not self.task_dir.is_dir():
            raise UserError(f"{self.task_dir} is not there", "task_dir of the config names the project's directory")
        if (self.root.exists() or self.root.is_symlink()) and not self.root.is_dir():
            raise UserError(f"{self.root} cannot be used: it is no directory", _ROOM)


def new_run_id() -> str:
    """A name that sorts by time and is also fit for a folder, a unix socket and a job name."""
    import secrets

    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)
