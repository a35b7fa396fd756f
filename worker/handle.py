"""A run as its trainer sees it: may it go on, and what it has to tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Dict, Optional, Tuple

from .failures import Cancelled
from .trainers.base import Handle

if TYPE_CHECKING:
    from .control import Control
    from .events import EventWriter


class RunHandle(Handle):
    """Passes a trainer's progress on to the event stream, and the wishes from outside to the trainer."""

    def __init__(self, events: EventWriter, control: Control, device: str = "cpu",
                 threads: Optional[int] = None) -> None:
        self._events = events
        self._control = control
        self.device = device
        self.threads = threads
        self.kept = False               # fit was told to end early
        self.prefix = ""                # names the scheme when a run has several
        self._began: Dict[str, Tuple[float, float]] = {}

    def check(self) -> None:
        if self._control.stopping is not None:
            raise Cancelled()

    def keep_wanted(self) -> bool:
        self.check()
        self.kept = self.kept or self._control.keep
        return self._control.keep

    def progress(self, phase: str, current: float, total: Optional[float] = None,
                 eta_s: Optional[float] = None) -> None:
        now = time.monotonic()
        first = self._began.setdefault(phase, (now, current))
        if eta_s is None and total and first[1] < current < total:
            eta_s = round((now - first[0]) / (current - first[1]) * (total - current), 1)
        self._events.progress(phase, current, total, eta_s)
        if total is not None and current >= total:
            self._began.pop(phase, None)

    def metric(self, split: str, name: str, value: float, step: Optional[int] = None) -> None:
        self._events.emit("metric", split=split, name=self.prefix + name, value=value, step=step)

    def log(self, msg: str) -> None:
        self._events.log("info", self.prefix + msg)

    def warn(self, msg: str) -> None:
        self._events.log("warning", self.prefix + msg)

    def step(self, text: str) -> None:
        self._events.emit("status", state="running", step=self.prefix + text)
