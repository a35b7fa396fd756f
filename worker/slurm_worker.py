"""The worker as a job of Slurm's, seen from the login node. Nothing here waits; every look does what is due.

The worker's end is told by the file that job.sh writes as its last act. Slurm is asked to know what becomes of
the job before it runs, and why it ended when the file does not tell.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from . import protocol, slurm, slurm_end, slurm_why
from .agent_message import Job
from .agent_worker import Trouble, WorkerHandle
from .jobdir import JobDir
from .slurm import Done, Look
from .slurm_call import Clerk
from .slurm_clock import NodeClock
from .slurm_ladder import Ladder
from .slurm_news import Bulletin
from .slurm_queue import Queue
from .slurm_record import Record
from .slurm_share import Share
from .slurm_submit import Submission

LOOK_S = 0.1        #: between two looks into the job directory
LEASE_S = 15.0
LOOKUP_S = 10.0     #: between two lookups by name, at most


class Bounds(NamedTuple):
    """In seconds; the job's ``scheduler`` may name others."""

    submit_s: float = 120.0   #: of one sbatch, which waits by itself at a busy controller
    query_s: float = 60.0     #: of one squeue or scontrol
    cancel_s: float = 100.0   #: of one scancel, which tries for a minute and a half
    doubt_s: float = 60.0     #: so long answered lookups must find nothing before sbatch is called again
    settle_s: float = 90.0    #: until a file on shared storage shows everywhere

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> "Bounds":
        return cls(**{name: float(said[name]) for name in cls._fields
                      if type(said.get(name)) in (int, float) and 0 < said[name] <= 3600})


class SlurmWorker(WorkerHandle):
    """One job, submitted by this agent or by one before it."""

    logs = (slurm.OUTPUT, protocol.STDERR_FILE)

    def __init__(
        self, jobdir: JobDir, job: Job, record: Record, bounds: Bounds, cluster: str = "",
        clock: Callable[[], float] = time.monotonic,
    ):
        self.settle_s = bounds.settle_s
        self.silent_since = clock()
        self._jobdir, self._record, self._clock = jobdir, record, clock
        self._bounds = bounds
        self._bulletin = Bulletin(record, job.attempt)
        self._clerk = Clerk(record.calls, clock, record.note)
        had = record.job_id
        self._submission = Submission(
            jobdir, record, self._clerk, submit_s=bounds.submit_s, query_s=bounds.query_s, doubt_s=bounds.doubt_s,
            interval_s=min(job.poll_interval_s, LOOKUP_S), cluster=cluster, log=self._bulletin.warn, clock=clock,
        )
        if record.job_id and not had:
            self._bulletin.submitted(jobdir.read(slurm.JOB_SCRIPT) or "")
        self._queue = Queue(
            record, self._clerk, Share(jobdir, record, clock), job.poll_interval_s, bounds.query_s, clock)
        self._ladder = Ladder(clock)
        self._node_clock = NodeClock(clock)
        self._over = False
        self._code: Optional[int] = None
        self._code_at = 0.0
        self._ran_at = clock()
        self._cancelling = ""               #: the job that the scancel under way is about
        self._rung_at = 0.0                 #: what was seen before a rung was taken may be wrong after it
        self._has_claim = False
        self._next_lease = self._next_look = clock()

    # --- what the agent asks --------------------------------------------------------------------------

    def alive(self) -> bool:
        now = self._clock()
        if not self._over:
            self._keep_lease(now)
            self._step(now)
            if not self._record.ran or self._queue.suspended:
                self.silent_since = now
            if self._over and self._record.calls:
                self._bulletin.calls()
        return not self._over

    def ask_to_stop(self) -> None:
        if not self._ladder.asked:
            self._ladder.ask()
            self._queue.hurry()

    def kill(self) -> None:
        if not self._ladder.killing:
            self._ladder.kill()
            self._queue.hurry()

    def exit_code(self) -> Optional[int]:
        return self._code

    def close(self) -> None:
        self._clerk.drop()
        self._record.note()

    def take_news(self) -> List[Dict[str, Any]]:
        return self._bulletin.take()

    def heard(self, event: Mapping[str, Any]) -> None:
        """A worker that speaks, runs: often earlier than squeue says so."""
        told = self._node_clock.heard(event)
        if told:
            self._bulletin.log(told)
        host = event.get("host")
        ours = event.get("event") == "status" and event.get("attempt") == self.attempt and isinstance(host, str)
        if ours and not self._record.ran and self._record.job_id and not self._over:
            self._runs(Look("RUNNING", node=str(host)[:200]))

    @property
    def job_id(self) -> str:
        """"" while nobody knows it, and when there is no job."""
        return self._record.job_id

    @property
    def attempt(self) -> int:
        return self._bulletin.attempt

    def explain(self, code: Optional[int], told: bool) -> Optional[Trouble]:
        return slurm_end.explain(self._jobdir, self._record, self._queue.seen, code, told)

    # --- one look --------------------------------------------------------------------------------------

    def _step(self, now: float) -> None:
        self._look(now)
        answer = self._clerk.answer()
        if answer is not None:
            self._take(*answer)
        received = self._queue.received() if not self._clerk.asking else None
        if received is not None:
            self._heed(self._queue.take("squeue", *received, own=False), received[1])
        if self._record.job_id:
            self._over = self._has_ended(now)
            if self._over:
                self._read_code(now)  # it may have come since the last look
            elif not self._clerk.asking:
                self._ask(now)
        else:
            self._submit()

    def _submit(self) -> None:
        self._submission.step(self._ladder.asked)
        self._bulletin.weather(self._submission.weather)
        if self._record.job_id:
            self._bulletin.submitted(self._jobdir.read(slurm.JOB_SCRIPT) or "")
        self._over = bool(self._record.refused) or self._submission.none

    def _ask(self, now: float) -> None:
        if self._submission.stray:
            stray = self._submission.stray.pop(0)
            self._bulletin.warn("SLURM job %s has the same name and is cancelled" % stray)
            self._scancel("plain", stray)
            return
        rung = self._ladder.due(self._waiting())
        if rung:
            self._scancel(rung, self._record.job_id)
        else:
            self._queue.step(after=self._wanted(now), prove=self._ladder.asked)

    def _scancel(self, rung: str, job_id: str) -> None:
        self._cancelling = job_id
        argv = slurm.cancel(rung, job_id, self._record.name, self._record.cluster)
        self._clerk.ask("scancel", argv, self._bounds.cancel_s)

    def _take(self, kind: str, done: Done, asked_at: float) -> None:
        if kind in ("submit", "find"):
            was = self._record.job_id
            self._submission.take(kind, done, self._ladder.asked)
            if self._record.job_id and not was:
                self._bulletin.weather("")
                self._bulletin.submitted(self._jobdir.read(slurm.JOB_SCRIPT) or "")
        elif kind == "scancel":
            if self._cancelling == self._record.job_id:
                self._ladder.taken()
                self._rung_at = self._clock()
                self._queue.hurry()
        else:
            self._heed(self._queue.take(kind, done, asked_at), asked_at)

    def _heed(self, look: Look, asked_at: float) -> None:
        self._bulletin.weather(self._queue.weather, self._queue.weather_since)
        if look.state and not look.over:
            self._seen(look, asked_at)

    def _seen(self, look: Look, asked_at: float) -> None:
        if not look.waiting:
            self._runs(look)
            return
        if self._record.ran or self._code is not None:
            if asked_at < max(self._ran_at, self._code_at):
                return  # an old answer: the job has begun since
            self._requeued(max(self._record.restarts + 1, look.restarts or 0))
        self._bulletin.state(look)

    def _runs(self, look: Look) -> None:
        if look.state == "RUNNING" and not self._record.ran:
            self._record.ran, self._ran_at = True, self._clock()
        self._bulletin.state(look)

    def _requeued(self, restarts: int) -> None:
        self._record.restarts, self._record.ran, self._record.said = restarts, False, ""
        self._record.note()
        self._code = None
        self._bulletin.requeued()

    # --- the end ------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """What job.sh has left in the directory; listing it makes shared storage show what is new."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        with contextlib.suppress(OSError):
            restarts = max(map(_restarts_of, os.listdir(self._jobdir.root)))
            if restarts > self._record.restarts:
                self._requeued(restarts)
            self._read_code(now)
        if self._record.job_id and not self._has_claim:
            claimed = self._record.claimed()
            self._has_claim = bool(claimed)
            if claimed not in ("", self._record.job_id):
                self._bulletin.warn("SLURM job %s has the job directory" % claimed)
                self._submission.stray.append(self._record.job_id)
                self._record.job_id = claimed
                self._record.note()

    def _read_code(self, now: float) -> None:
        if self._code is None:
            with contextlib.suppress(OSError):
                self._code = self._jobdir.read_exit_code(_code_file(self._record.restarts))
            self._code_at = now
            if self._code is not None:
                self._queue.hurry()

    def _has_ended(self, now: float) -> bool:
        """A job that is to be stopped is over when it is proven gone, and not before. Else its exit code tells,
        but for one that Slurm's signals bring about: such a job may come back."""
        left_at, asked_at = self._queue.left_at, self._queue.seen_at
        if self._ladder.asked:
            return left_at is not None or self._code == protocol.EXIT_OK
        if self._code is not None and self._code != protocol.EXIT_CANCELLED and 0 <= self._code <= 128:
            return True
        if left_at is None:
            return False
        if self._code is not None:
            return asked_at >= self._code_at
        return not slurm_why.ran(self._queue.seen) or asked_at >= left_at + self._bounds.settle_s

    def _wanted(self, now: float) -> Optional[float]:
        """An answer to a question of later than this is wanted soon; None when the next one in turn will do."""
        if self._code is not None:
            return max(self._code_at, self._rung_at)
        if self._queue.left_at is not None:
            second = self._queue.left_at + self._bounds.settle_s
            return second if now >= second else None
        return self._rung_at or None

    def _waiting(self) -> Optional[bool]:
        seen = self._queue.seen
        if self._record.ran or (seen is not None and not seen.waiting):
            return False
        return None if seen is None or self._queue.seen_at < self._rung_at else True

    def _keep_lease(self, now: float) -> None:
        if now >= self._next_lease:
            self._next_lease = now + LEASE_S
            with contextlib.suppress(OSError):
                self._jobdir.write(protocol.LEASE_FILE, "%d %.3f\n" % (os.getpid(), time.time()))


def _code_file(restarts: int) -> str:
    return protocol.EXIT_CODE_FILE + (".%d" % restarts if restarts else "")


def _restarts_of(name: str) -> int:
    head, _, number = name.rpartition(".")
    return int(number) if head == protocol.EXIT_CODE_FILE and number.isdigit() and len(number) < 6 else 0
