"""Ending a job of Slurm's, rung by rung. Each rung is a wish: what it did is learnt from the queue alone."""

from __future__ import annotations

import time
from typing import Callable, List, Optional

#: Between two rounds of rungs, growing from the first to the second, for as long as the job is there.
AGAIN_S = (5.0, 30.0)


class Ladder:
    """``pending`` and ``term``; once ``kill`` was called ``kill`` and ``plain``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.asked = False
        self.killing = False
        self._clock = clock
        self._rungs: List[str] = []
        self._next = clock()
        self._pause = AGAIN_S[0]

    def ask(self) -> None:
        if not self.asked:
            self.asked = True
            self._rungs = ["pending", "term"]

    def kill(self) -> None:
        if not self.killing:
            self.asked = self.killing = True
            self._rungs = ["kill", "plain"]
            self._next = self._clock()

    def due(self, waiting: Optional[bool]) -> str:
        """The rung to take now, "" for none. ``waiting``: whether the job has not started, None when nobody knows:
        to signal a pending job would take scancel a minute and a half."""
        if not self.asked or self._clock() < self._next:
            return ""
        if not self._rungs:
            self._rungs = ["kill", "plain"] if self.killing else ["pending", "term"]
        if self._rungs[0] == "kill" and waiting is not False:
            self._rungs.pop(0)
        if self._rungs[0] == "term":
            if waiting is None:
                return ""
            if waiting:
                self._rungs.pop(0)
                self.taken()
                return ""
        return self._rungs.pop(0)

    def taken(self) -> None:
        """A rung's call has ended, however."""
        if not self._rungs:
            self._next = self._clock() + self._pause
            self._pause = min(self._pause * 2, AGAIN_S[1])
