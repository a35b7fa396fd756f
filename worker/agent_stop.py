"""Asking a worker to stop, and seeing to it: control says the word, a signal hurries, KILL ends it.

The reason is written down before anything is done, so that an agent that starts again in the middle
knows why the worker is ending and goes on from there.
"""

from __future__ import annotations

import contextlib
import time
from typing import Callable, Optional

from . import protocol
from .agent_worker import WorkerHandle
from .jobdir import JobDir

#: After a KILL, how long until the next: a process in an uninterruptible read takes none.
_AGAIN_S = 1.0


class Stop:
    """The wish about one worker. It only gets stricter: keep, then stop, then kill."""

    def __init__(self, jobdir: JobDir, clock: Callable[[], float] = time.monotonic):
        self.reason: Optional[str] = None  #: one of protocol's REASON words, None while nobody asked
        self._jobdir = jobdir
        self._clock = clock
        self._kill_at: Optional[float] = None
        self._kept = False
        self._hurried = False
        written = jobdir.read_json(protocol.STOP_FILE)
        if written is not None and isinstance(written.get("reason"), str):
            self.reason = written["reason"]

    @property
    def due_in_s(self) -> Optional[float]:
        """Seconds until the next signal has to be sent; None when none is planned."""
        return None if self._kill_at is None else max(0.0, self._kill_at - self._clock())

    def resume(self, grace_s: float) -> None:
        """For an agent that takes a job up: a stop that was asked for before goes on, with a grace of its own."""
        if self.reason is not None:
            self._kill_at = self._clock() + grace_s

    def keep(self) -> None:
        """End training at the next batch and keep the best model. No signal: that would be a cancel."""
        if not self._kept and self.reason is None:
            self._kept = True
            with contextlib.suppress(OSError):
                self._jobdir.write(protocol.CONTROL_FILE, protocol.CONTROL_KEEP + "\n")

    def ask(self, reason: str, grace_s: float, message: str = "") -> bool:
        """Stop now; what is not over after ``grace_s`` is killed. Asked again, only a shorter grace
        changes anything. True the first time."""
        first = self.reason is None
        if first:
            self.reason = reason
            with contextlib.suppress(OSError):  # a full disk is no reason not to stop
                self._jobdir.write_json(protocol.STOP_FILE, {"reason": reason, "message": message})
                self._jobdir.write(protocol.CONTROL_FILE, protocol.CONTROL_STOP + "\n")
        kill_at = self._clock() + grace_s
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)
        return first

    def tick(self, worker: WorkerHandle) -> None:
        """Sends the signal that is due, if one is."""
        if self._kill_at is None:
            return
        if not self._hurried:
            self._hurried = True
            worker.ask_to_stop()
        if self._clock() >= self._kill_at:
            worker.kill()
            self._kill_at = self._clock() + _AGAIN_S
