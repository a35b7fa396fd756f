"""slurm.json: what an agent has to know of a job that another agent submitted, on this login node or another."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Optional

from .jobdir import JobDir

SLURM_FILE = "slurm.json"
SBATCH_FILE = "sbatch.json"      #: the identity of the latest sbatch, written by itself
SBATCH_OUT, SBATCH_ERR = "sbatch.out", "sbatch.err"
CLAIM = ("claim", "job")         #: the id of the job that has the directory, written by job.sh


class Record:
    """The intent is there before sbatch is called, the id right after; an empty id means that there may be a
    job or not."""

    def __init__(self, jobdir: JobDir, name: str):
        self.name = name
        self.job_id = ""
        self.cluster = ""
        self.tries = 0            #: how often sbatch was called
        self.refused = ""         #: sbatch's words when there will be no job
        self.restarts = 0         #: how often Slurm has requeued the job
        self.ran = False          #: it was seen to run since the latest restart
        self.said = ""            #: the latest state that the run log has
        self.counted = False      #: the run log has what all calls came to
        self.calls: Dict[str, int] = {}
        self._jobdir = jobdir

    @classmethod
    def read(cls, jobdir: JobDir) -> Optional["Record"]:
        """None when nothing was ever submitted from this job directory."""
        value = jobdir.read_json(SLURM_FILE)
        if value is None or not isinstance(value.get("name"), str):
            return None
        record = cls(jobdir, value["name"])
        for field, kind in (("job_id", str), ("cluster", str), ("tries", int), ("refused", str), ("restarts", int),
                            ("ran", bool), ("said", str), ("counted", bool)):
            found = value.get(field)
            if type(found) is kind:
                setattr(record, field, found)
        calls = value.get("calls")
        if isinstance(calls, dict):
            record.calls.update((k, n) for k, n in calls.items() if type(n) is int)
        return record

    def write(self) -> None:
        """Raises OSError; without this the next step must not be taken."""
        value: Dict[str, Any] = {name: item for name, item in vars(self).items() if not name.startswith("_")}
        self._jobdir.write_json(SLURM_FILE, value)

    def note(self) -> None:
        """For what can be found out again: a full disk is no reason to stop here."""
        with contextlib.suppress(OSError):
            self.write()

    def claimed(self) -> str:
        """The id of the job that began to run in the directory, "" while none did."""
        try:
            text = (self._jobdir.read("/".join(CLAIM), 64) or "").strip()
        except OSError:
            return ""
        return text if text.isascii() and text.isdigit() else ""
