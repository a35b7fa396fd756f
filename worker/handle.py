"""A run as its trainer sees it: may it go on, and what it has to tell."""

import time

from .failures import Cancelled
from .trainers.base import Handle


class RunHandle(Handle):
    """Passes a trainer's progress on to the event stream, and the wishes from outside to the trainer."""

    def __init__(self, events, control, device="cpu", threads=None):
        self._events = events
        self._control = control
        self.device = device
        self.threads = threads
        self.kept = False               # fit was told to end early
        self.prefix = ""                # names the scheme when a run has several
        self._began = {}

    def check(self):
        if self._control.stopping is not None:
            raise Cancelled()

    def keep_wanted(self):
        self.check()
        self.kept = self.kept or self._control.keep
        return self._control.keep

    def progress(self, phase, current, total=None, eta_s=None):
        now = time.monotonic()
        first = self._began.setdefault(phase, (now, current))
        if eta_s is None and total and first[1] < current < total:
            eta_s = round((now - first[0]) / (current - first[1]) * (total - current), 1)
        self._events.progress(phase, current, total, eta_s)
        if total is not None and current >= total:
            self._began.pop(phase, None)

    def metric(self, split, name, value, step=None):
        self._events.emit("metric", split=split, name=self.prefix + name, value=value, step=step)

    def log(self, msg):
        self._events.log("info", self.prefix + msg)

    def warn(self, msg):
        self._events.log("warning", self.prefix + msg)

    def step(self, text):
        self._events.emit("status", state="running", step=self.prefix + text)
