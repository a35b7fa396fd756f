"""The story of one job: claim it, fetch its bundle, start or find its worker, watch it, report its end.

The job directory is the state. An agent may die in any line of this file: the next one, started on the
same directory, reads what is there and goes on.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, Optional

from . import protocol
from .agent_bundle import Fetch, NoBundle
from .agent_claim import NoJob, job_of
from .agent_ears import Ears
from .agent_launch import Launcher
from .agent_limits import Limits, silence
from .agent_link import Down, Gone, Link, Rejected
from .agent_message import Job
from .agent_news import News
from .agent_report import Report
from .agent_reporter import AgentLog, Reporter
from .agent_stop import Stop
from .agent_worker import StartFailed, WorkerHandle
from .http_client import Answer
from .jobdir import JobDir, hostname

POLL_S = 0.05           #: between two looks at the files of a running worker
IDLE_S = 0.25
GONE_GRACE_S = 2.0      #: for the worker of a job that is over on the server: nothing it does matters any more
LINGER_S = 3600.0       #: with on_disconnect: finish, how long an agent stays after the end without a server


class GaveUp(Exception):
    """No answer for longer than this job allows. The job directory keeps everything."""


class _Failure(Exception):
    """The job ends here, before or instead of its worker."""

    def __init__(self, reason: str, message: str, hint: str = ""):
        super().__init__(message)
        self.reason, self.hint = reason, hint


class JobAgent:
    """``run`` does one job in its directory, and returns when the server has acknowledged its result.

    Raises GaveUp, NoJob, Superseded and Rejected; each leaves the job directory fit for another agent.
    """

    def __init__(
        self, jobdir: JobDir, link: Link, launcher: Launcher, ears: Ears, *,
        say: Callable[[str], None] = lambda text: None, clock: Callable[[], float] = time.monotonic,
        linger_s: float = LINGER_S,
    ):
        self._jobdir, self._link, self._launcher, self._ears = jobdir, link, launcher, ears
        self._say, self._clock = say, clock
        self._linger_s = linger_s
        self._worker: Optional[WorkerHandle] = None
        self._news = News(jobdir, clock)

    def run(self) -> None:
        job = job_of(self._jobdir, self._link, self._insist, self._rest)
        self._begin(job)
        reason = protocol.REASON_FINISHED
        try:
            try:
                self._worker = self._find() or self._start()
                self._watch(self._worker)
            except _Failure as failure:
                reason = failure.reason
                self._log.error(failure.reason.replace("-", "_"), str(failure), failure.hint)
            self._report_end(reason)
        except Gone:
            self._abandon(protocol.REASON_GONE)
            self._try_result()
        except Rejected:
            self._abandon(protocol.REASON_GAVE_UP)
            raise
        finally:
            self._log.close()

    # --- before the worker ------------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        self._job = job
        self._link.give_up_s = job.give_up_s
        for name in (protocol.EVENTS_FILE, protocol.STDERR_FILE):
            self._jobdir.touch(name)
        if not self._jobdir.has(protocol.CONTROL_FILE):
            self._jobdir.write(protocol.CONTROL_FILE, protocol.CONTROL_RUN + "\n")
        self._log = AgentLog(self._jobdir, job.attempt)
        self._stop = Stop(self._jobdir, self._clock)
        self._reporter = Reporter(
            self._link, job, self._jobdir, on_worker_event=self._hear, on_agent_event=self._news.agent,
            clock=self._clock,
        )
        self._report = Report(self._link, job, self._jobdir, self._reporter, self._log, self._insist)

    def _find(self) -> Optional[WorkerHandle]:
        try:
            worker = self._launcher.find(self._jobdir, self._job)
        except StartFailed as error:
            raise _Failure(protocol.REASON_WORKER_LOST, str(error)) from None
        if worker is not None:
            self._log.log("agent %d took up this job on %s" % (os.getpid(), hostname()))
            self._stop.resume(self._job.grace_s)
        return worker

    def _start(self) -> WorkerHandle:
        size = self._job.bundle_size / 1e6
        if not self._jobdir.has(protocol.BUNDLE_DIR):
            self._log.status(protocol.PREPARING, "getting the bundle: %.1f MB" % size)
        try:
            Fetch(
                self._link, self._job, self._jobdir, pulse=self._pulse, wait=self._wait_for_link,
                say=lambda text: self._log.status(protocol.PREPARING, text), clock=self._clock,
            ).run()
            self._jobdir.write_json(protocol.SPEC_FILE, self._job.spec_to_write())
        except NoBundle as error:
            raise _Failure(protocol.REASON_BUNDLE, str(error)) from None
        except OSError as error:
            raise _Failure(
                protocol.REASON_BUNDLE,
                "the bundle could not be stored in %s on %s: %s" % (self._jobdir.root, hostname(), error.strerror),
            ) from None
        self._pulse()
        self._log.status(protocol.PREPARING, "starting the worker on %s" % hostname())
        try:
            worker = self._launcher.start(self._jobdir, self._job)
        except StartFailed as error:
            raise _Failure(protocol.REASON_START_FAILED, str(error), error.hint) from None
        for note in self._launcher.notes:
            self._log.log(note)
        return worker

    def _pulse(self) -> None:
        """Called while bytes move: reports when that is due, and ends the job when somebody wishes that."""
        self._reporter.look()
        self._reporter.beat(apart=True)
        if self._reporter.cancel:
            raise _Failure(protocol.REASON_CANCELLED, "cancelled before the worker started")
        if self._ears.asked_to_end:
            raise _Failure(protocol.REASON_AGENT_STOPPED, "the agent was asked to end before the worker started")

    def _wait_for_link(self) -> None:
        if self._link.gave_up:
            raise GaveUp(silence(self._link))
        self._ears.rest(POLL_S)
        self._pulse()

    # --- while it runs ------------------------------------------------------------------------------

    def _watch(self, worker: WorkerHandle) -> None:
        """Until the worker's end: relays what it says, and sees to it that it ends when it should."""
        said_silence = False
        limits = Limits(self._job, self._link, self._ears, self._stop, self._log, self._news, self._say, self._clock)
        self._stop.tick(worker)  # a wish from before this agent: nothing is to be submitted any more
        while worker.alive():
            self._look()
            limits.look(worker)
            self._stop.tick(worker)
            worker.tick()
            self._tell(worker)
            self._link.hurry_s = self._stop.due_in_s
            self._reporter.beat()
            if self._reporter.cancel and self._stop.ask(protocol.REASON_CANCELLED, self._job.grace_s):
                self._log.log("cancelled: the worker has %g seconds to end" % self._job.grace_s)
            elif self._reporter.keep:
                self._stop.keep()
            if self._link.failures and not said_silence:
                self._say("no answer from the server: %s" % self._link.last_error)
            said_silence = bool(self._link.failures)
            self._ears.rest(POLL_S)
        self._link.hurry_s = None

    def _hear(self, event: Dict[str, Any]) -> None:
        self._news.worker(event)
        if self._worker is not None:
            self._worker.heard(event)

    def _tell(self, worker: WorkerHandle) -> None:
        for event in worker.take_news():
            self._log.event(event.pop("event"), **event)

    def _look(self, final: bool = False) -> None:
        for strange in self._reporter.look(final):
            self._log.log(strange, level="warning")

    # --- after it -------------------------------------------------------------------------------------

    def _report_end(self, reason: str) -> None:
        """Events, predictions, result: each until it is acknowledged."""
        code = None
        if self._worker is not None:
            code = self._settled_exit_code(self._worker)
            self._worker.close()
            self._tell(self._worker)
            trouble = self._worker.explain(code, self._told(self._worker))
            if self._stop.reason is not None:
                reason = self._stop.reason
            elif trouble is not None:
                self._log.error(*trouble)
                reason = trouble.message
            elif code is None:
                reason = protocol.REASON_WORKER_LOST
        self._deliver()
        if self._worker is not None and not self._news.end_was_said:
            self._report.say_end(code, reason, self._worker.logs)
            self._deliver()
        digest = self._news.predictions_sha256
        if digest is not None and not self._reporter.cancel:
            refused = self._report.predictions(digest)
            if refused is not None:
                reason = refused
                self._deliver()
        answer = self._report.result(code, reason, self._news.software)
        if answer.status != 200:
            raise NoJob("the server refused the result: %s" % answer.json.get("error", answer.status))

    def _settled_exit_code(self, worker: WorkerHandle) -> Optional[int]:
        """The exit code, once all that the worker left can be seen: shared storage shows files late."""
        until = self._clock() + (0.0 if self._stop.reason is not None else worker.settle_s)
        while True:
            code = worker.exit_code()
            self._look()
            if self._clock() >= until or self._all_here(worker, code):
                return code
            self._reporter.beat()
            self._ears.rest(IDLE_S)

    def _all_here(self, worker: WorkerHandle, code: Optional[int]) -> bool:
        if not self._told(worker):  # a worker that was killed has no last word
            killed = code is None or code > 128 or code == protocol.EXIT_CANCELLED
            return killed or worker.explain(code, False) is not None
        return self._news.predictions_sha256 is None or protocol.PREDICTIONS_FILE in os.listdir(self._jobdir.root)

    def _told(self, worker: WorkerHandle) -> bool:
        return self._news.last_word >= (worker.attempt or 1)

    def _deliver(self) -> None:
        """Everything in both files, acknowledged."""
        while True:
            self._look(final=True)
            if self._reporter.all_sent:
                return
            self._insist(self._send_batch)

    def _send_batch(self) -> Answer:
        self._reporter.send()
        return Answer(200, {}, b"")

    def _insist(self, request: Callable[[], Answer]) -> Answer:
        """The answer to a request, however often it has to be tried. Raises GaveUp, Gone and their kin."""
        began = self._clock()
        job: Optional[Job] = getattr(self, "_job", None)
        while True:
            if self._link.ready():
                try:
                    return request()
                except Down:
                    patient = job is not None and job.finish_alone and self._clock() - began < self._linger_s
                    if self._link.gave_up and not patient:
                        raise GaveUp(silence(self._link)) from None
            if self._ears.times_asked > 1:
                raise GaveUp("asked to end twice")
            self._ears.rest(POLL_S)

    def _rest(self, seconds: float) -> None:
        self._ears.rest(seconds)
        if self._ears.asked_to_end:
            raise NoJob("asked to end")

    def _abandon(self, reason: str) -> None:
        """The job is over on the server, or the server's door is shut: nothing of it may go on here."""
        if self._worker is None:
            return
        self._say("this job is over on the server; stopping its worker")
        self._stop.ask(reason, min(self._job.grace_s, GONE_GRACE_S))
        self._stop.tick(self._worker)
        while self._worker.alive():
            self._stop.tick(self._worker)
            self._ears.rest(POLL_S)
        self._worker.close()

    def _try_result(self) -> None:
        """Says on the other side that nothing runs here any more."""
        code = None if self._worker is None else self._worker.exit_code()
        try:
            self._report.try_result(code, self._stop.reason or protocol.REASON_GONE)
        except (Gone, Rejected):
            return
