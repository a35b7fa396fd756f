"""What an agent itself remembers of the events that pass through it."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any, Callable, Dict, Optional

from . import protocol
from .jobdir import JobDir

_SHA256 = re.compile(r"[0-9a-f]{64}")


class News:
    """``worker`` and ``agent`` are given the events of the two streams, each event once."""

    def __init__(self, jobdir: JobDir, clock: Callable[[], float] = time.monotonic):
        self.first_event_at: Optional[float] = None  #: by the agent's clock
        self.end_was_said = False  #: the worker's last output is in the agent's stream already
        self._jobdir = jobdir
        self._clock = clock
        self.last_word = 0  #: the attempt that has said how it ended, 0 while none has
        self._result: Dict[str, Any] = {}
        self._software: Dict[str, str] = {}

    def worker(self, event: Dict[str, Any]) -> None:
        if self.first_event_at is None:
            self.first_event_at = self._clock() - self._age(event)
        software = event.get("software")
        if event.get("event") == "status" and isinstance(software, dict):
            self._software.update(
                (name[:100], version[:100]) for name, version in list(software.items())[:100]
                if isinstance(name, str) and isinstance(version, str)
            )
        elif event.get("event") in ("result", "error"):
            attempt = event.get("attempt")
            self.last_word = attempt if isinstance(attempt, int) else 1
            if event["event"] == "result":
                self._result = event

    def agent(self, event: Dict[str, Any]) -> None:
        if event.get("level") == "stderr":
            self.end_was_said = True

    @property
    def predictions_sha256(self) -> Optional[str]:
        """The digest that the worker's latest result names."""
        digest = self._result.get("predictions_sha256")
        return digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None

    @property
    def software(self) -> Dict[str, str]:
        """Names and versions for the result message."""
        return dict({"python": "%d.%d.%d" % sys.version_info[:3]}, **self._software)

    def _age(self, event: Dict[str, Any]) -> float:
        """Seconds since the event: 0 for one that is just being written; for an agent that took the job up
        by its time stamp, but never longer than the job is here (clocks differ)."""
        written = event.get("t")
        if not isinstance(written, (int, float)) or isinstance(written, bool):
            return 0.0
        here = time.time() - os.stat(self._jobdir.path(protocol.JOB_FILE)).st_mtime
        age = min(time.time() - written, here)
        return age if age > 1.0 else 0.0
