"""What the run log gets to read of a Slurm job: each change once, in the words that people search for."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

from . import protocol, slurm
from .slurm import Look
from .slurm_record import Record


class Bulletin:
    """Events for the agent's stream, taken away with ``take``. ``first_attempt`` is the job's own; each restart
    by Slurm is another."""

    def __init__(self, record: Record, first_attempt: int):
        self._record, self._first = record, first_attempt
        self._events: List[Dict[str, Any]] = []
        self._bad_weather = False

    @property
    def attempt(self) -> int:
        return self._first + self._record.restarts

    def take(self) -> List[Dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def submitted(self, script: str) -> None:
        flags = slurm.flags(script)
        self._status(protocol.WAITING, "Submitted SLURM job %s%s" % (
            self._record.job_id, " (%s)" % flags if flags else ""))

    def state(self, look: Look) -> None:
        """A state that is another than the last, with its reason or its node."""
        before = self._record.said
        if str(look) == before or (not look.waiting and look.state == before.partition(" ")[0]):
            return
        self._record.said = str(look)
        self._record.note()
        line = "SLURM job %s: %s" % (self._record.job_id, look)
        if look.state == "COMPLETING":  # the worker's own last step is better to look at
            self.log(line)
        else:
            state = protocol.WAITING if look.waiting else protocol.RUNNING if self._record.ran else None
            self._status(state, line, **({"node": look.node} if look.node else {}))
        if slurm.never_starts(look):
            self.warn("SLURM job %s will not start: waiting does not clear %s" % (self._record.job_id, look.reason))
        elif slurm.held(look):
            how = "`scontrol release %s` lets it go on" % self._record.job_id
            if look.reason == "JobHeldAdmin":
                how = "only the cluster's administrators can release it"
            self.warn("SLURM job %s is held (%s): %s" % (self._record.job_id, look.reason, how))

    def requeued(self) -> None:
        self.warn("SLURM job %s was requeued: attempt %d" % (self._record.job_id, self.attempt))

    def weather(self, why: str, since: Optional[float] = None) -> None:
        """``why`` nobody can reach Slurm, "" when it answers."""
        if bool(why) == self._bad_weather:
            return
        self._bad_weather = bool(why)
        if why:
            self._status(None, "cannot reach Slurm since %s" % time.strftime("%H:%M", time.localtime(since)))
            self.log("Slurm: %s" % why)
        else:
            self.log("Slurm answers again")

    def calls(self) -> None:
        """At the end, once: what this run has cost the cluster's controller."""
        if self._record.counted:
            return
        self._record.counted = True
        self._record.note()
        counts = ", ".join("%s %d" % pair for pair in sorted(self._record.calls.items()))
        self._tell("log", level="info", msg="calls of Slurm's commands: %s" % counts,
                   scheduler_calls=dict(self._record.calls))

    def log(self, text: str) -> None:
        self._tell("log", level="info", msg=text)

    def warn(self, text: str) -> None:
        self._tell("log", level="warning", msg=text)

    def _status(self, state: Optional[str], step: str, **facts: Any) -> None:
        if state is not None:
            facts["state"] = state
        if self._record.job_id:
            facts["scheduler_job"] = self._record.job_id
        if self._record.cluster:
            facts["scheduler_cluster"] = self._record.cluster
        self._tell("status", step=step, scheduler_calls=dict(self._record.calls), **facts)

    def _tell(self, kind: str, **fields: Any) -> None:
        self._events.append(dict(fields, event=kind, attempt=self.attempt))
