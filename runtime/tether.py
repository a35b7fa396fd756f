"""Keeps a run and its agent within reach of each other: starts another agent, logs in again.

A lost connection is the weather: it is shown beside the run's status and tried again with growing pauses,
while the clock of the agent's silence, kept by others, decides how long that goes on. Where a host refuses the login,
somebody has to do something first: what that is stands in the log and on the page.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from .bounds import bounds
from .launchers import ConnectionLost, Desk, Launcher, Unwelcome

#: How often a run's agent is started again after it died.
_RELAUNCHES = 3


class Interrupted(Exception):
    """Something happened that matters more than what is being waited for."""


class Tether:
    """``login`` starts or tells the agent: True when it had to start one. ``apart``: nobody has told it yet."""

    def __init__(self, launcher: Launcher, login: Callable[[], bool], desk: Desk, *, apart: bool):
        self._launcher, self._login, self._desk = launcher, login, desk
        self._apart = apart
        self._relaunches = 0
        self._last_login = time.monotonic()
        self._next_try = 0.0
        self._tries = 0
        self._since = 0.0           # unix time of the loss, for people
        self._why = ""

    @property
    def reached(self) -> bool:
        """Whether the agent has been told where we are: until then it hears of no wish."""
        return not self._apart

    @property
    def lost(self) -> bool:
        """True while the connection is known to be away."""
        return bool(self._why)

    def tend(self, silent_s: float) -> str:
        """Looks, and does what is due. The reason why no agent can be had any more, else "". Raises LaunchError."""
        gone = "" if self._apart or self._why else self._launcher.trouble()
        if gone:
            if self._relaunches >= _RELAUNCHES:
                return gone
            self._relaunches += 1
            self._desk.log(f"{gone}; starting another on its job directory")
            self._try()
            return ""
        now = time.monotonic()
        lost = self._why or self._launcher.lost(min(silent_s, now - self._last_login))
        if lost and not self._why:
            self._lose(lost)
        if (self._apart or lost) and now >= self._next_try:
            self._try()
        return ""

    def _try(self) -> None:
        with suppress(Interrupted):
            try:
                self._login()
            except ConnectionLost as error:
                self._lose(str(error), error.hint, isinstance(error, Unwelcome))
                pause = min(bounds().login_first_s * 2 ** min(self._tries, 20), bounds().login_most_s)
                self._tries += 1
                self._next_try = time.monotonic() + pause
                return
            self._apart = False
            self._last_login = time.monotonic()
            self._tries = 0
            self._find()

    def _lose(self, why: str, hint: str = "", unwelcome: bool = False) -> None:
        if not self._why:
            self._since = time.time()
            self._desk.log(f"the connection is lost ({why}); logging in again")
        elif why != self._why and unwelcome:  # not for each kind of weather
            self._desk.log(f"still not connected: {why}")
        if why != self._why:
            if unwelcome:
                self._desk.log(hint)
            self._desk.note(connection={"up": False, "since": self._since, "why": why, "hint": hint})
        self._why = why

    def _find(self) -> None:
        if self._why:
            self._desk.log(f"connected again after {time.time() - self._since:.0f} s")
            self._desk.note(connection={"up": True, "since": time.time(), "why": ""})
        self._why = ""
