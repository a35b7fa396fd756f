"""A compute node's clock beside the login node's, told by the times in the job's events. Nothing relies on it.

An event from the future tells at once. One from the past may only have come late, over storage that lags or from
before this agent: the freshest within a minute tells.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, Optional

from .jobdir import hostname

SKEW_S = 60.0
#: How late shared storage may show a line.
_LAG_S = 60.0


class NodeClock:
    """``heard`` gives a line to tell, once, else ""."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time):
        self._clock, self._wall = clock, wall
        self._since: Optional[float] = None
        self._node = "the compute node"
        self._least_age = float("inf")
        self._told = False

    def heard(self, event: Mapping[str, Any]) -> str:
        """``event``: one of the worker's."""
        host, at = event.get("host"), event.get("t")
        if isinstance(host, str):
            self._node = host[:200]
        if self._told or isinstance(at, bool) or not isinstance(at, (int, float)):
            return ""
        age = self._wall() - at
        if self._since is None:
            self._since = self._clock()
        self._least_age = min(self._least_age, age)
        if age < -SKEW_S:
            return self._tell(-age, "ahead of")
        if self._clock() - self._since >= _LAG_S and self._least_age > SKEW_S:
            return self._tell(self._least_age, "behind")
        return ""

    def _tell(self, seconds: float, side: str) -> str:
        self._told = True
        return "note: the clock of %s is %.0f s %s that of %s" % (self._node, seconds, side, hostname())
