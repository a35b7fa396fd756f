"""What Slurm says of one job over time: when to ask, whom, and when its silence counts as the job's end."""

from __future__ import annotations

import time
from typing import Callable, Optional, Tuple

from . import slurm
from .slurm import Done, Look
from .slurm_call import Clerk, has_program
from .slurm_record import Record
from .slurm_share import Share

_PROOF_S = 1.0
_LONGEST_S = 60.0
_MUTE = 3


class Queue:
    """``step`` asks what is due; ``take`` gives the Look of an answer. One squeue an interval, and none but that;
    where other runs ask as well, one for all of them (``received`` is what another agent has brought).

    The job has left (``left_at``) when squeue knows it no more, or calls it ended, and scontrol agrees; where
    there is no scontrol, squeue's word counts and whoever relies on it looks twice.
    """

    def __init__(
        self, record: Record, clerk: Clerk, share: Share, interval_s: float, query_s: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.seen: Optional[Look] = None     #: the latest that is known
        self.seen_at = clock()               #: when it was asked for
        self.left_at: Optional[float] = None
        self.weather = ""                    #: why nobody answers
        self.weather_since: Optional[float] = None   #: and since when, by the wall clock
        self._record, self._clerk, self._share, self._clock = record, clerk, share, clock
        self._interval_s, self._query_s = interval_s, query_s
        self._next_squeue = self._next_show = clock()
        self._yields_until: Optional[float] = None   #: a question that is due is left to another agent until then
        self._heard_at = clock()
        self._failures = 0
        self._proofs = 0
        self._has_scontrol: Optional[bool] = None
        self._mute = 0                       #: how often in a row scontrol could not confirm what squeue said

    @property
    def suspended(self) -> bool:
        return self.seen is not None and self.seen.state in ("SUSPENDED", "STOPPED")

    def step(self, *, after: Optional[float] = None, prove: bool = False) -> None:
        """Asks, if that is due. ``after``: an answer to a question of later than this is wanted soon. ``prove``: the
        job's end is awaited, and scontrol asked for it more often than squeue would be."""
        now = self._clock()
        wanted = after is not None and self.seen_at < after
        odd = bool(self._failures % 2)  # the other program is asked then: one of them may be what is broken
        if prove and not odd and self._scontrol():
            if now >= self._next_show:
                self._show(min(_PROOF_S * 2 ** min(self._proofs, 6), max(self._interval_s, _PROOF_S)))
                self._proofs += 1
            return
        due = now >= self._next_squeue and (self.left_at is None or wanted)
        if due and not wanted and self._yields(now):
            return
        if due or (wanted and not self._failures):
            self._next_squeue = now + min(
                self._interval_s * 2 ** min(self._failures, 6), max(self._interval_s, _LONGEST_S)
            )
            if odd and not prove and self._scontrol():
                self._show(0)
            else:
                self._clerk.ask("squeue", self._share.question(), self._query_s)

    def _yields(self, now: float) -> bool:
        """Once at least: another agent may have asked a moment ago."""
        if self._yields_until is None:
            self._yields_until = now + self._share.patience(self._interval_s)
            return True
        if now < self._yields_until:
            return True
        self._yields_until = None
        return False

    def received(self) -> Optional[Tuple[Done, float]]:
        """What another agent was told of this job, when it is due: looked for while the question is left to it."""
        if self._yields_until is None:
            return None
        found = self._share.received(self._heard_at)
        if found is not None:
            self._yields_until, self._heard_at = None, found[1]
            self._next_squeue = found[1] + self._interval_s
        return found

    def take(self, kind: str, done: Done, asked_at: float, *, own: bool = True) -> Look:
        """``own``: of a question of this agent's."""
        if kind == "squeue" and own:
            done, self._heard_at = self._share.answered(done, asked_at), asked_at
        read = slurm.read_poll if kind == "squeue" else slurm.read_show
        look = read(done, self._record.job_id, self._record.name)
        if kind == "show":
            self._mute = 0 if look.known else self._mute + 1
            if done.missing or self._mute >= _MUTE:
                self._has_scontrol = False
        elif not look.known:
            self._mute = 0  # nobody answers: that is the weather, and not scontrol
        if not look.known:
            self._failures += 1
            self.weather = look.why
            self.weather_since = self.weather_since or time.time()
            return look
        self._failures, self.weather, self.weather_since = 0, "", None
        if look.over and kind == "squeue" and self._scontrol():
            self._show(0)  # and until it agrees nothing is known
            return look
        self.seen_at = asked_at
        self.left_at = (self.left_at or self._clock()) if look.over else None
        if not look.gone or self.seen is None or not self.seen.over:
            self.seen = look
        return look

    def hurry(self) -> None:
        """Something has happened that should show soon."""
        self._proofs, self._next_show = 0, self._clock()

    def _show(self, pause_s: float) -> None:
        self._next_show = self._clock() + pause_s
        self._clerk.ask("show", slurm.show(self._record.job_id, self._record.cluster), self._query_s)

    def _scontrol(self) -> bool:
        if self._has_scontrol is None:
            self._has_scontrol = has_program("scontrol")
        return self._has_scontrol
