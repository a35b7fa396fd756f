"""Time as the supervisor keeps it: since when an agent is silent, and how long a run has been at something.

All by our own monotonic clock. What other machines say about time is for display only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from .bounds import bounds


class Switchboard:
    """When each run's agent was last heard of, by our monotonic clock, and how to wake the waiting."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heard: dict[str, float] = {}
        self._count = 0

    def heard(self, run_id: str) -> None:
        with self._changed:
            self._heard[run_id] = time.monotonic()
            self._count += 1
            self._changed.notify_all()

    def silence(self, run_id: str) -> float:
        with self._changed:
            return time.monotonic() - self._heard.setdefault(run_id, time.monotonic())

    def wake(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)


class Clocks:
    """The clocks of one run that the supervisor keeps itself."""

    def __init__(self, job: dict[str, Any], on_waking: Callable[[], None]):
        self.grace_s = float(job["grace_seconds"])
        self._on_waking = on_waking
        self._last_look = time.monotonic()
        self._max_wall = job["max_wall_seconds"]
        self.cancelled_at: float | None = None
        self.words = -1
        self._first_event_at: float | None = None

    def tick(self) -> None:
        """Called several times a second: a gap means that we were stopped or asleep, and nobody is to blame."""
        now = time.monotonic()
        if now - self._last_look > bounds().slept_s:
            self._on_waking()
        self._last_look = now

    def grace_over(self) -> bool:
        return self.cancelled_at is not None and time.monotonic() - self.cancelled_at >= self.grace_s

    def wall_over(self, begun: bool, agent_reason: str) -> float | None:
        """max_wall_seconds once it has passed; the agent enforces it, this is for an agent that does not."""
        if self._max_wall is None:
            return None
        if agent_reason == "max-wall":
            return float(self._max_wall)
        if begun and self._first_event_at is None:
            self._first_event_at = time.monotonic()
        if self._first_event_at is None:
            return None
        late = time.monotonic() - self._first_event_at - self._max_wall - self.grace_s - bounds().wall_slack_s
        return float(self._max_wall) if late > 0 else None
