"""After the worker's end: its last events and output, its predictions, and the result that ends the job."""

from __future__ import annotations

import base64
import os
import stat
import time
from typing import Any, Callable, Dict, Iterator, Optional, Sequence
from urllib.parse import quote

from . import protocol
from .agent_link import Down, Link
from .agent_message import Job
from .agent_reporter import AgentLog, Reporter
from .http_client import Answer, Client
from .jobdir import JobDir, hostname

#: An upload whose digest the server finds wrong is repeated: it may have been damaged on the way.
UPLOAD_ATTEMPTS = 3
_LONGEST_LINE = 2000

Insist = Callable[[Callable[[], Answer]], Answer]


class Report:
    """``insist`` repeats a request until it is answered, or raises: how long that goes on is the agent's to know."""

    def __init__(self, link: Link, job: Job, jobdir: JobDir, reporter: Reporter, log: AgentLog, insist: Insist):
        self._link, self._job, self._jobdir = link, job, jobdir
        self._reporter, self._log, self._insist = reporter, log, insist
        self._path = "%s/jobs/%s" % (protocol.API_PREFIX, job.run_id)

    def say_end(self, code: Optional[int], reason: str, logs: Sequence[str]) -> None:
        """The worker's end and the last of what it printed, as events of the agent."""
        for name in logs:
            for line in tail_lines(self._jobdir.path(name)):
                self._log.log(line, level=name.partition(".")[0])
        ended = "the worker ended with exit code %d" % code if code is not None else "the worker left no exit code"
        self._log.log(ended if reason == protocol.REASON_FINISHED else "%s (%s)" % (ended, reason))

    def predictions(self, digest: str) -> Optional[str]:
        """Uploads predictions.jsonl. Returns None when the server has them, else the reason for the result."""
        path = self._jobdir.path(protocol.PREDICTIONS_FILE)
        answer = None
        upload = _Stubborn(lambda: self._link.call_apart(lambda client: self._put(client, path, digest)), self._link)
        for _ in range(UPLOAD_ATTEMPTS):
            try:
                answer = self._insist(upload)
            except _NoWay as error:
                self._log.error("predictions_not_sent", str(error))
                return protocol.REASON_PREDICTIONS_REFUSED
            except OSError as error:
                self._log.error("predictions_missing", "predictions.jsonl cannot be read: %s" % error.strerror)
                return protocol.REASON_PREDICTIONS_REFUSED
            if answer.status == 200:
                return None
            if answer.status == 413:
                self._log.error("predictions_too_large", _said(answer))
                return protocol.REASON_PREDICTIONS_TOO_LARGE
        self._log.error("predictions_refused", "the server refused the predictions: %s" % _said(answer))
        return protocol.REASON_PREDICTIONS_REFUSED

    def _put(self, client: Client, path: str, digest: str) -> Answer:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(0, "not a regular file")
            encoded = base64.b64encode(bytes.fromhex(digest)).decode()
            headers = {"Content-Type": "application/x-ndjson", "Content-Digest": "sha-256=:%s:" % encoded}
            return client.upload(
                self._path + "/predictions", file, found.st_size, headers, self._reporter.beat
            )

    def result(self, code: Optional[int], reason: str, software: Dict[str, str]) -> Answer:
        """The result, sent until it is acknowledged."""
        body = result_body(self._jobdir, code, reason, software)
        return self._insist(lambda: self._link.call(lambda client: client.post(self._path + "/result", body)))

    def try_result(self, code: Optional[int], reason: str) -> None:
        """The result for a job that is over there: it confirms that nothing runs here. Once, without hope."""
        body = result_body(self._jobdir, code, reason, {})
        try:
            self._link.call_apart(lambda client: client.post(self._path + "/result", body))
        except Down:
            return


class _NoWay(Exception):
    """An upload breaks again and again while other requests are answered: something in between does not let it pass."""


class _Stubborn:
    """A request that is not tried for ever when it alone gets no answer."""

    def __init__(self, request: Callable[[], Answer], link: Link, clock: Callable[[], float] = time.monotonic):
        self._request, self._link, self._clock = request, link, clock
        self._began, self._failed = clock(), 0

    def __call__(self) -> Answer:
        try:
            return self._request()
        except Down as error:
            self._failed += 1
            waited = self._clock() - self._began
            alone = self._link.silent_s < self._link.give_up_s
            if alone and self._failed >= UPLOAD_ATTEMPTS and waited >= self._link.give_up_s:
                raise _NoWay(
                    "the predictions could not be sent in %.0f seconds and %d attempts (%s), while other requests were "
                    "answered: is there a proxy that limits sizes or times?" % (waited, self._failed, error)
                ) from None
            raise


def result_body(jobdir: JobDir, code: Optional[int], reason: str, software: Dict[str, str]) -> Dict[str, Any]:
    return {
        "exit_code": code, "reason": reason, "artifact_uri": artifact_uri(jobdir), "software": software,
        "hostname": hostname(),
    }


def artifact_uri(jobdir: JobDir) -> Optional[str]:
    """Host and directory of the model files, None when there are none."""
    path = jobdir.path(protocol.ARTIFACTS_DIR)
    try:
        return "file://%s%s" % (hostname(), quote(path)) if os.listdir(path) else None
    except OSError:
        return None


def tail_lines(path: str, size: int = protocol.TAIL_BYTES) -> Iterator[str]:
    """The lines in the last ``size`` bytes of a log. Of a progress bar drawn over itself only the last state."""
    try:
        with open(path, "rb") as file:
            whole = os.fstat(file.fileno()).st_size
            file.seek(max(0, whole - size))
            text = file.read(size).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.split("\n"):
        line = line.rstrip("\r").rpartition("\r")[2].strip()
        if line:
            yield line[:_LONGEST_LINE]


def _said(answer: Optional[Answer]) -> str:
    if answer and answer.status == 413 and not answer.is_ours:
        return "a proxy before the server refuses a body of this size (status 413); raise its limit there"
    return str(answer.json.get("error", "status %d" % answer.status))[:500] if answer else "no answer"
