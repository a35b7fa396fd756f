"""Handing a queued run to an agent that asks for work: at most once, whoever asks at the same time.

Any server of the project may be asked; the ledger's transaction decides.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from ..worker.protocol import PREPARING, QUEUED
from . import life
from .store import Run, Store

KIND = "agent"


def claim(store: Store, backend: str, agent: Mapping[str, Any]) -> Run | None:
    """The run that this agent is to do now, or None.

    ``agent``: id, hostname, version, python, gpus. An agent that lost the answer and asks again under the same
    id gets the same run until it has reported. While another run executes nobody gets any. The release is
    written down in the same transaction: from here on somebody else holds something of the run.
    """
    if not any(run.backend == backend for run in store.open_runs()):
        return None  # nearly always so: many agents that ask do not wait for each other's turn to write
    with store.transaction() as db:
        runs = [
            (row["run_id"], row["attempt"], row["state"], row["backend"], row["wish"], json.loads(row["facts"]))
            for row in db.execute("SELECT * FROM runs WHERE settled = 0 ORDER BY place")
        ]
        chosen = ""
        for run_id, _, state, where, _, facts in runs:
            mine = where == backend and (facts.get("agent") or {}).get("id") == agent["id"]
            if mine and not life.is_over(state) and "report" not in facts:
                chosen = run_id
        if not chosen and any(state in life.EXECUTING for _, _, state, _, _, _ in runs):
            return None
        for run_id, _, state, where, wish, facts in runs:
            waiting = where == backend and state == QUEUED and facts.get("claimable") and wish is None
            if not chosen and waiting:
                chosen = run_id
                facts["agent"] = dict(agent)
                facts.setdefault("timings", {})[PREPARING] = time.time()
                db.execute(
                    "UPDATE runs SET state = ?, step = ?, facts = ? WHERE run_id = ?",
                    (PREPARING, f"claimed by {agent['hostname'] or agent['id']}", json.dumps(facts), run_id),
                )
                db.execute(
                    "INSERT OR IGNORE INTO releases (run_id, kind, target, created) VALUES (?, ?, ?, ?)",
                    (run_id, KIND, json.dumps({"backend": backend}), time.time()),
                )
    return store.get(chosen) if chosen else None


def claimable_now(store: Store, run_id: str) -> bool:
    """Whether an agent that asked at this moment would get the run: none executes."""
    return not any(run.state in life.EXECUTING for run in store.open_runs() if run.run_id != run_id)
