"""One squeue for all of an account's runs on a login node: whoever asks, asks for the others too.

The answer is laid into the job directories of those whose agents are on this machine. Each agent waits a moment
longer than the one before it, by name; so the first one asks, and an agent that dies is missed for that moment only.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import protocol, slurm
from .jobdir import JobDir, Lock, hostname
from .slurm import Done
from .slurm_record import SLURM_FILE, Record

SHARED_FILE = "squeue.json"
#: A lease is renewed every 15 s while an agent lives.
_ALIVE_S = 60.0
_MOST = 100
_PATIENCE = (2.0, 0.2)


class Share:
    def __init__(self, jobdir: JobDir, record: Record, clock: Callable[[], float] = time.monotonic):
        self._jobdir, self._record, self._clock = jobdir, record, clock
        self._asked: Dict[str, JobDir] = {}   #: the others that the question under way is about, too
        self._alone = False
        self._rank = 0

    def question(self) -> List[str]:
        """squeue's words for this job and the others'."""
        self._asked = {} if self._alone else self._others()
        return slurm.poll(",".join([self._record.job_id, *self._asked]), self._record.cluster)

    def answered(self, done: Done, asked_at: float) -> Done:
        """Gives each of the others what was said of its job; what was said of ours."""
        asked, self._asked = self._asked, {}
        if asked and slurm.no_such_job(done):
            self._alone = True  # a squeue that does not pass over an unknown one
        ids = [self._record.job_id, *asked]
        for job_id, jobdir in asked.items():
            said = slurm.only(done, job_id, ids)
            value = {"job": job_id, "at": asked_at, "host": hostname(), "code": said.code, "out": said.out,
                     "err": said.err}
            with contextlib.suppress(OSError):
                jobdir.write_json(SHARED_FILE, value)
        return slurm.only(done, self._record.job_id, ids)

    def received(self, after: float) -> Optional[Tuple[Done, float]]:
        """(an answer that another agent got to a question of later than ``after``, when that was asked)."""
        value: Dict[str, Any] = self._jobdir.read_json(SHARED_FILE) or {}
        at, code = value.get("at"), value.get("code")
        if type(at) is not float or not after < at <= self._clock() or type(code) is not int:
            return None
        if value.get("host") != hostname() or value.get("job") != self._record.job_id:
            return None
        return Done(code, str(value.get("out") or ""), str(value.get("err") or "")), at

    def patience(self, interval_s: float) -> float:
        """How long an answer that is due is left to others: nothing for the first of them."""
        self._others()
        return min(_PATIENCE[0], interval_s / 3) + _PATIENCE[1] * self._rank if self._rank else 0.0

    def _others(self) -> Dict[str, JobDir]:
        """id -> directory of the jobs of the same cluster whose agents are alive on this machine."""
        found: Dict[str, JobDir] = {}
        folder, own = os.path.split(self._jobdir.root)
        self._rank = 0
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                if name != own and len(found) < _MOST:
                    jobdir = JobDir(os.path.join(folder, name))
                    record = _live(jobdir)
                    if record is not None and record.cluster == self._record.cluster:
                        found[record.job_id] = jobdir
                        self._rank += name < own
        return found


def _live(jobdir: JobDir) -> Optional[Record]:
    try:
        age = time.time() - os.stat(jobdir.path(protocol.LEASE_FILE)).st_mtime
        if not -_ALIVE_S < age < _ALIVE_S or not jobdir.has(SLURM_FILE):
            return None
        record = Record.read(jobdir)
    except OSError:
        return None
    if record is None or not record.job_id.isdigit() or not record.job_id.isascii():
        return None
    return record if Lock(jobdir.path(protocol.AGENT_LOCK)).holder().get("host") == hostname() else None
