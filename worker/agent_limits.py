"""Everything that may end a run from the agent's side: a wish of its owner's, a silent server, and bounds of time."""

from __future__ import annotations

import time
from typing import Callable

from . import protocol
from .agent_ears import Ears
from .agent_link import Link
from .agent_message import Job
from .agent_news import News
from .agent_reporter import AgentLog
from .agent_stop import Stop
from .agent_worker import WorkerHandle


class Limits:
    """``look`` asks the worker to stop when one of them is reached, and says why."""

    def __init__(
        self, job: Job, link: Link, ears: Ears, stop: Stop, log: AgentLog, news: News, say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._job, self._link, self._ears, self._stop = job, link, ears, stop
        self._log, self._news, self._say, self._clock = log, news, say, clock

    def look(self, worker: WorkerHandle) -> None:
        self._owner()
        self._server()
        self._time(worker)

    def _owner(self) -> None:
        if self._ears.stdin_ended:
            self._ears.stdin_ended = False
            self._link.try_now()  # a hint that the login is gone: ask, and let the answer tell
        if self._ears.asked_to_end and self._stop.ask(protocol.REASON_AGENT_STOPPED, self._job.grace_s):
            self._log.log("the agent was asked to end and stops its worker", level="warning")
        if self._ears.times_asked > 1:
            self._stop.ask(protocol.REASON_AGENT_STOPPED, 0)

    def _server(self) -> None:
        if self._link.gave_up and not self._job.finish_alone:
            message = silence(self._link)
            if self._stop.ask(protocol.REASON_GAVE_UP, self._job.grace_s, message):
                self._say(message + ": stopping the worker")
                self._log.log(message + ": the worker was stopped", level="warning")

    def _time(self, worker: WorkerHandle) -> None:
        job, first, now = self._job, self._news.first_event_at, self._clock()
        if first is not None and job.max_wall_s is not None and now - first >= job.max_wall_s:
            message = "The run was stopped after %g seconds (model_training.max_wall_seconds)" % job.max_wall_s
            if self._stop.ask(protocol.REASON_MAX_WALL, job.grace_s, message):
                self._log.error("max_wall", message)
        if first is None and now - worker.silent_since >= job.first_event_s:
            message = "The worker wrote no event in its first %g seconds" % job.first_event_s
            if self._stop.ask(protocol.REASON_START_FAILED, job.grace_s, message):
                self._log.error("no_first_event", message)


def silence(link: Link) -> str:
    return "no answer from the server for %.0f seconds (%s)" % (link.silent_s, link.last_error)
