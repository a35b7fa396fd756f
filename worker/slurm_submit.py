"""One job for one run: sbatch, and what to do when nobody knows whether it has made a job.

A submission that may have worked is never repeated before Slurm has answered for a while that there is no job of
this name. Until then every way to learn the id counts: sbatch's own output, which outlives the agent; the queue; and
the claim that the job itself lays down in its directory.
"""

from __future__ import annotations

import os
import pwd
import signal
import time
from typing import Callable, List

from . import slurm
from .jobdir import Identity, JobDir, hostname
from .slurm import Done, Doubtful, Refused
from .slurm_call import Clerk
from .slurm_end import NO_SBATCH
from .slurm_record import SBATCH_ERR, SBATCH_FILE, SBATCH_OUT, Record

TRIES = 3
_ALARM_SLACK_S = 5.0


class Submission:
    """``step`` is called again and again until ``record.job_id`` is there, ``record.refused``, or ``none``.

    ``submit_s``: sbatch's own bound. ``doubt_s``: how long answered lookups must have found nothing.
    """

    def __init__(
        self, jobdir: JobDir, record: Record, clerk: Clerk, *, submit_s: float, query_s: float, doubt_s: float,
        interval_s: float, cluster: str = "", log: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.none = False            #: there is no job and there will be none: somebody wished so in time
        self.weather = ""            #: why the last lookup had no answer
        self.stray: List[str] = []   #: other jobs of this name, to be cancelled
        self._jobdir, self._record, self._clerk = jobdir, record, clerk
        self._submit_s, self._query_s, self._doubt_s = submit_s, query_s, doubt_s
        self._interval_s, self._cluster, self._log, self._clock = interval_s, cluster, log, clock
        self._doubt = ""             #: sbatch's words, or whose job we took up, while the id is unknown
        self._next = self._until = clock()
        self._empty_since = -1.0     #: since when answered lookups find nothing, -1 when none has
        if record.tries and not record.job_id and not record.refused:
            self._take_up()

    def step(self, wished: bool) -> None:
        """``wished``: the run is to be stopped; nothing is submitted any more, as nothing is after a refusal."""
        if self._record.refused:
            return
        if self._record.claimed():
            self._adopt(self._record.claimed())
        elif self._clerk.asking:
            return
        elif not self._doubt and wished:
            self.none = True
        elif not self._doubt:
            self._send()
        elif self._clock() >= self._next:
            self._next = self._clock() + self._interval_s
            self._clerk.ask("find", slurm.find(self._record.name, _user(), self._cluster), self._query_s)

    def take(self, kind: str, done: Done, wished: bool) -> None:
        """The answer to what ``step`` asked."""
        if kind == "submit":
            self._sent(done)
        elif kind == "find":
            self._found(done, wished)

    # --- sbatch ---------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._record.tries += 1
        self._record.write()
        self._jobdir.write(SBATCH_OUT, "")

        def sign() -> None:
            self._jobdir.write_json(SBATCH_FILE, Identity.of(os.getpid()).to_json())
            # an sbatch whose agent was killed does not go on trying for ever
            signal.alarm(int(self._submit_s + _ALARM_SLACK_S) + 1)

        self._clerk.ask(
            "submit", slurm.submit(self._record.name), self._submit_s, out=self._jobdir.path(SBATCH_OUT),
            err=self._jobdir.path(SBATCH_ERR), sign=sign, cwd=self._jobdir.root,
        )

    def _sent(self, done: Done) -> None:
        if done.missing:
            self._refuse("%s %s" % (hostname(), NO_SBATCH))
            return
        answer = slurm.read_submit(done)
        if isinstance(answer, Refused):
            self._refuse(answer.words)
        elif isinstance(answer, Doubtful):
            self._log("sbatch: %s; looking whether there is a job all the same" % answer.why)
            self._wonder(answer.why)
        else:
            self._adopt(answer.job_id, answer.cluster)

    def _take_up(self) -> None:
        """Another agent called sbatch and was gone before it knew the id."""
        identity = Identity.from_json(self._jobdir.read_json(SBATCH_FILE))
        here = identity is not None and identity.host == hostname()
        if identity is not None and here:
            identity.kill_group()
        answer = slurm.job_named(self._jobdir.read(SBATCH_OUT) or "")
        if answer is not None:
            self._adopt(answer.job_id, answer.cluster)
            return
        self._wonder("the agent that called sbatch is gone")
        if not here:  # it may still be at work where we cannot see it
            self._until = self._clock() + self._submit_s + _ALARM_SLACK_S

    # --- is there a job? --------------------------------------------------------------------------------

    def _wonder(self, why: str) -> None:
        self._doubt = why
        self._next, self._empty_since = self._clock(), -1.0

    def _found(self, done: Done, wished: bool) -> None:
        ids = slurm.read_find(done)
        now = self._clock()
        if ids is None:
            self.weather = slurm.said(done) if done.code is not None else "squeue did not answer in time"
            self._empty_since = -1.0
            return
        self.weather = ""
        if ids:
            self.stray += ids[1:]
            self._adopt(ids[0])
            return
        if self._empty_since < 0:
            self._empty_since = now
        if now - self._empty_since < self._doubt_s or now < self._until:
            return
        words, self._doubt = self._doubt, ""
        if wished:
            self.none = True
        elif self._record.tries >= TRIES:
            self._refuse(words)
        else:
            self._log("Slurm knows no job %s; submitting it again" % self._record.name)

    def _adopt(self, job_id: str, cluster: str = "") -> None:
        if self._clerk.asking in ("submit", "find"):
            self._clerk.drop()
        self._record.job_id = job_id
        self._record.cluster = cluster or self._cluster
        self._record.note()

    def _refuse(self, words: str) -> None:
        self._record.refused = words
        self._record.note()


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
