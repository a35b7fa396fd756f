"""The agent backend: nobody is started from here. An agent asks for work; until then the run is queued.

The other half of this backend is ``claims``, where the asking is answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...schema.errors import UserError
from .. import claims
from ..bounds import bounds
from ..jobs import read_job
from ..places import Places
from ..store import Store
from ..tokens import BACKEND
from . import Desk, LaunchError

#: An agent that was heard of within this time is there, and only has not asked again yet.
_RECENT_S = 60.0
#: How often the time that a run has waited is written down, so that a restart does not begin anew.
_NOTE_EVERY_S = 5.0


class AgentLauncher:
    """Follows a run that an agent has claimed. There is nothing to start, to lose or to fetch."""

    def __init__(self, backend: str, desk: Desk):
        self.place = self.address = backend
        self._desk = desk

    def launch(self, socket: str, new_token: Callable[[], str], *, known: bool = False) -> bool:
        return False

    def trouble(self) -> str:
        return ""

    def lost(self, silent_s: float) -> str:
        return ""

    def started(self) -> bool:
        return True

    def fetch(self) -> list[str]:
        return []  # model files stay with the agent; its report says where

    def leave(self) -> None: ...


def await_claim(store: Store, run_id: str, backend: str, timeout_s: float | None, pause: Callable[[], None]) -> None:
    """Returns when the run is claimed, or is over. Raises UserError once ``timeout_s`` has passed.

    Only time in which the run could have been claimed counts, across restarts of ours.
    """
    run = store.get(run_id)
    waited = float(run.facts.get("waited_s", 0)) if run else 0.0
    noted, last = waited, time.monotonic()
    store.note(run_id, claimable=True)
    while True:
        run = store.get(run_id)
        if run is None or run.state != "queued" or run.wish == "cancel":
            return
        now = time.monotonic()
        if claims.claimable_now(store, run_id):
            waited += min(now - last, bounds().slept_s)
        last = now
        if waited - noted > _NOTE_EVERY_S:
            store.note(run_id, waited_s=waited)
            noted = waited
        if timeout_s is not None and waited > timeout_s:
            raise UserError(
                f"No agent has asked for work for {backend}",
                f"start `potato training agent --backend {backend}` on that machine while `potato training serve` "
                f"is up here; test the token with `potato training check {backend}`",
            )
        line = _waiting_line(store, backend)
        if run.step != line:
            store.note(run_id, step=line)
        pause()


def _waiting_line(store: Store, backend: str) -> str:
    seen = next((row["last_seen"] for row in store.tokens() if (row["kind"], row["name"]) == (BACKEND, backend)), None)
    if seen is not None and time.time() - seen < _RECENT_S:
        return f"waiting for the agent on {backend} to ask again"
    return f"No agent has asked for work for {backend}"


def release_agent(where: Places, run_id: str) -> list[str]:
    """Confirmed by the agent's report; or by time, since an agent without answers ends its worker by itself.

    Raises LaunchError until then.
    """
    run = Store(where.store).get(run_id)
    if run is None or "report" in run.facts or run.ended is None:
        return []
    job: dict[str, Any] = read_job(where.run_dir(run_id))
    allowed = float(job["give_up_s"]) + float(job["grace_seconds"]) + bounds().agent_slack_s
    if time.time() - run.ended > allowed:
        return [f"no report from the agent on {run.backend}; without answers it ended its worker {allowed:g} s ago"]
    raise LaunchError(f"the agent on {run.backend} has not reported yet")
