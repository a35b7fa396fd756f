"""Two streams of events to the server, and its wishes back: every report is also the heartbeat."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Dict, List, Optional

from . import protocol
from .agent_link import Down, Link
from .agent_message import Job
from .agent_tail import Line, Tail
from .http_client import Answer, Client, encode
from .jobdir import JobDir

#: Two batches of a busy stream are at least this far apart: at 1,000 events a second ten requests, not fifty.
GAP_S = 0.1
_MOST_EVENTS = 5000
_NAMED_EVENT = re.compile(r"events\[(\d+)\]")


class AgentLog:
    """The agent's own stream: lines appended to agent.jsonl. What it says on stderr is for a log file too."""

    def __init__(self, jobdir: JobDir, attempt: int = 1):
        self._attempt = attempt
        self._descriptor = jobdir.open_append(protocol.AGENT_EVENTS_FILE)
        with open(jobdir.path(protocol.AGENT_EVENTS_FILE), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - 1))
            # an agent before this one died in the middle of a line
            self._torn = bool(size) and file.read(1) != b"\n"

    def event(self, kind: str, **fields: Any) -> None:
        event: Dict[str, Any] = {
            "v": protocol.EVENT_VERSION, "event": kind, "t": round(time.time(), 3), "attempt": self._attempt,
        }
        event.update(fields)
        line = (b"\n" if self._torn else b"") + encode(protocol.cut_event(event)) + b"\n"
        try:
            self._torn = os.write(self._descriptor, line) < len(line)
        except OSError:  # the disk is full; what matters more must still be done
            return

    def status(self, state: str, step: str) -> None:
        self.event("status", state=state, step=step)

    def log(self, message: str, level: str = "info") -> None:
        self.event("log", level=level, msg=message)

    def error(self, code: str, message: str, hint: str = "") -> None:
        self.event("error", code=code, message=message, install_hint=hint or None)

    def close(self) -> None:
        os.close(self._descriptor)


class _Stream:
    """One stream: what has been read and not yet acknowledged. The file itself is the buffer; no more
    than one batch is in memory, however long the server is away."""

    def __init__(self, name: str, tail: Tail, notice: Callable[[Dict[str, Any]], None]):
        self.name = name
        self.tail = tail
        self.wanted: Optional[int] = None  #: the server's next_seq; None until it has told
        self.pending: List[Line] = []
        self.most = _MOST_EVENTS
        self._notice = notice
        self._noticed = protocol.FIRST_SEQ

    def fill(self, final: bool = False) -> None:
        """Reads a batch when none is pending. Lines that the server has are noticed here and not sent."""
        while not self.pending:
            lines = self.tail.poll(self.most, final)
            for line in lines:
                if line.number >= self._noticed:
                    self._noticed = line.number + 1
                    self._notice(line.event)
            if not lines:
                if self.wanted is not None and self.tail.number < self.wanted:
                    self.tail.number = self.wanted  # the file lost lines that the server has
                return
            self.pending = [line for line in lines if self.wanted is None or line.number >= self.wanted]

    def body(self) -> bytes:
        if self.wanted is None:
            return b'{"stream":"%s","seq":%d,"events":[]}' % (self.name.encode(), protocol.FIRST_SEQ)
        events = b",".join(line.raw for line in self.pending[:self.most])
        seq = self.pending[0].number if self.pending else self.wanted
        return b'{"stream":"%s","seq":%d,"events":[%s]}' % (self.name.encode(), seq, events)

    def accept(self, next_seq: int) -> None:
        """The server has everything before ``next_seq``; it may also have lost what it had."""
        if self.wanted is not None and next_seq < self.wanted:
            self.tail.restart()
            self.pending = []
        self.wanted = next_seq
        self.pending = [line for line in self.pending if line.number >= next_seq]
        self.most = _MOST_EVENTS

    def refused(self, answer: Answer) -> None:
        """400 or 413: the batch again in a smaller or a plainer form, so that one line never blocks the rest."""
        sent = min(self.most, len(self.pending))
        if answer.status == 413 and sent > 1:
            self.most = sent // 2
            return
        named = _NAMED_EVENT.match(str(answer.json.get("field", "")))
        which = range(sent)
        if named and int(named[1]) < sent:
            which = range(int(named[1]), int(named[1]) + 1)
        for index in which:
            line = self.pending[index]
            plain = {
                "v": protocol.EVENT_VERSION, "event": "log", "t": round(time.time(), 3), "level": "warning",
                "msg": "%s event %d was refused by the server: %s"
                       % (self.name, line.number, str(answer.json.get("error", ""))[:200]),
            }
            self.pending[index] = Line(line.number, encode(plain), plain)


class Reporter:
    """Sends what is new, or a heartbeat when nothing is. ``cancel`` and ``keep`` are the server's wishes."""

    def __init__(
        self, link: Link, job: Job, jobdir: JobDir, *,
        on_worker_event: Callable[[Dict[str, Any]], None] = lambda event: None,
        on_agent_event: Callable[[Dict[str, Any]], None] = lambda event: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.cancel = False
        self.keep = False
        self._link = link
        self._path = "%s/jobs/%s/events" % (protocol.API_PREFIX, job.run_id)
        self._heartbeat_s = job.heartbeat_s
        self._clock = clock
        self._last_sent = clock() - job.heartbeat_s
        self._last_batch = clock() - GAP_S
        self.worker = _Stream(
            protocol.STREAM_WORKER, Tail(jobdir.path(protocol.EVENTS_FILE), job.attempt), on_worker_event
        )
        self.agent = _Stream(
            protocol.STREAM_AGENT, Tail(jobdir.path(protocol.AGENT_EVENTS_FILE), job.attempt), on_agent_event
        )
        self._streams = (self.worker, self.agent)

    def look(self, final: bool = False) -> List[str]:
        """Reads both files; returns what was strange about them."""
        strange = []
        for stream in self._streams:
            stream.fill(final)
            strange += stream.tail.strange
            stream.tail.strange = []
        return strange

    @property
    def due(self) -> bool:
        """True when there is something to send, or nothing was sent for a heartbeat."""
        now = self._clock()
        if now - self._last_sent >= self._heartbeat_s:
            return True
        waiting = any(stream.pending or stream.wanted is None for stream in self._streams)
        return waiting and now - self._last_batch >= GAP_S

    @property
    def all_sent(self) -> bool:
        """True when every line read so far is acknowledged, and there is none unread."""
        return all(
            stream.wanted is not None and not stream.pending and stream.tail.at_end() for stream in self._streams
        )

    def beat(self, apart: bool = False) -> None:
        """One round, when the link says that one may be tried. ``apart``: while a long request holds the
        kept connection. A round without an answer is no error here; Gone and its kin are raised."""
        if not (self.due and self._link.ready()):
            return
        try:
            self.send(apart)
        except Down:
            return

    def send(self, apart: bool = False) -> None:
        """Reports once: each stream that has something, else an empty batch. Raises what ``Link.call`` raises."""
        call = self._link.call_apart if apart else self._link.call
        headers = {"Content-Type": "application/json"}
        busy = [stream for stream in self._streams if stream.pending or stream.wanted is None]
        for stream in busy or [self.agent]:
            body = stream.body()

            def post(client: Client, body: bytes = body) -> Answer:
                return client.request("POST", self._path, body, headers)

            answer = call(post)
            self._last_sent = self._clock()
            if busy:
                self._last_batch = self._last_sent
            self._take(stream, answer)

    def _take(self, stream: _Stream, answer: Answer) -> None:
        said = answer.json
        next_seq = said.get("next_seq")
        if answer.status in (200, 409) and isinstance(next_seq, int) and next_seq >= 0:
            stream.accept(next_seq)
        elif answer.status in (400, 413):
            stream.refused(answer)
        self.cancel = self.cancel or said.get("cancel") is True
        self.keep = self.keep or said.get("stop_and_keep") is True
