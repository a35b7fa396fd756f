"""The agent's link to its server: where it is now, how often to knock, and when to stop hoping.

Only an answered request proves the link. What looks like an end (a closed stdin, a broken pipe) is a
reason to look again, never a reason to stop anything.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any, Callable, Dict, Optional, Tuple

from . import protocol
from .http_client import Answer, Client, Connect, Unreachable
from .jobdir import JobDir


class Down(Exception):
    """This request got no answer. ``Link.wait_s`` says when the next one is due."""


class Gone(Exception):
    """The server knows the job no more, or says that it is over (410, and 404 in its own words); or the job was
    released from another machine."""


class Superseded(Exception):
    """attach.json names a later generation: another agent has this job now."""


class Rejected(Exception):
    """401 and no newer token anywhere."""


class Link:
    """``call`` does one request and sorts what comes back; the clock of giving up runs between answers.

    With a job directory, ``attach.json`` there names the socket and the token, and is read again after
    every failure: a new login has written a new one. Without one, the address stays.
    """

    def __init__(
        self, address: str, token: str, *, jobdir: Optional[JobDir] = None, generation: int = 0,
        give_up_s: float = protocol.HEARTBEAT_TIMEOUT_S, timeout_s: Optional[float] = None,
        connect: Optional[Connect] = None, clock: Callable[[], float] = time.monotonic,
    ):
        self.generation = generation
        self.token = token
        self.address = address
        self.used = [address]      #: all that it has been at
        self._jobdir = jobdir
        self._connect = connect
        self._clock = clock
        self._fixed_timeout = timeout_s
        self.give_up_s = give_up_s
        self.hurry_s: Optional[float] = None  #: something else is due so soon; no request may take longer
        self.gave_up = False       #: for longer than give_up_s nothing was answered
        self.failures = 0          #: since the last answer
        self.last_error = ""
        self._last_answer = clock()
        self._next_try = clock()
        self._attach_seen = self._attach_stamp()
        self._client = Client(address, token, connect=connect)

    @property
    def timeout_s(self) -> float:
        """Of one read or write: short where there is little time to lose."""
        if self._fixed_timeout is not None:
            return self._fixed_timeout
        return max(1.0, min(15.0, self.give_up_s / 4, 15.0 if self.hurry_s is None else self.hurry_s))

    @property
    def silent_s(self) -> float:
        """Seconds since the last answer."""
        return self._clock() - self._last_answer

    def ready(self) -> bool:
        """True when a request may be tried now: the pause after a failure is over, or a new login is there."""
        if self.failures and self._attach_stamp() != self._attach_seen:
            return True
        return self._clock() >= self._next_try

    def try_now(self) -> None:
        """A hint that something about the link has changed."""
        self._next_try = self._clock()

    def call(self, request: Callable[[Client], Answer]) -> Answer:
        """The answer, whatever its status but for those that raise: Down, Gone, Superseded, Rejected."""
        self._client.timeout = self.timeout_s
        return self._sorted(request, self._client)

    def call_apart(self, request: Callable[[Client], Answer]) -> Answer:
        """The same over a connection of its own, so that small requests can go on beside a long one."""
        client = self.client_apart()
        try:
            return self._sorted(request, client)
        finally:
            client.close()

    def client_apart(self) -> Client:
        return Client(self.address, self.token, timeout=self.timeout_s, connect=self._connect)

    def answered(self) -> None:
        """Something of the server's arrived."""
        self._last_answer = self._clock()
        self.failures, self.gave_up, self.last_error = 0, False, ""

    def failed(self, why: str, began: float) -> None:
        """A request that began at ``began`` got no answer. Raises Superseded and Gone."""
        now = self._clock()
        self.failures += 1
        self.last_error = why
        changed = self._read_attach()
        # the process was stopped meanwhile (a laptop's lid): only a request of now says how things are
        slept = now - began > self.timeout_s * 2 + 5
        if changed or slept:
            self._next_try = now
            return
        left = self._last_answer + self.give_up_s - now
        if left <= 0:
            self.gave_up = True
        longest = 30.0 if self.gave_up else min(5.0, self.give_up_s / 4)
        pause = min(longest, 0.1 * 2 ** min(self.failures, 12)) * random.uniform(0.8, 1.2)  # noqa: S311
        self._next_try = now + (pause if left <= 0 else min(pause, left))

    def close(self) -> None:
        self._client.close()

    def _sorted(self, request: Callable[[Client], Answer], client: Client) -> Answer:
        began = self._clock()
        try:
            answer = request(client)
        except Unreachable as error:
            self.failed(str(error), began)
            raise Down(self.last_error) from None
        if answer.status in (404, 410) and answer.is_ours:
            self.answered()
            raise Gone(str(answer.json.get("error", "")))
        if answer.status == 401:
            self.failed("the server does not take this token", began)
            if self._jobdir is None and answer.is_ours:
                raise Rejected(self.last_error)
            raise Down(self.last_error)
        if answer.status == 413 and not answer.is_ours:
            return answer  # of a proxy with a limit of its own: final for this body, and no word of the server's
        if not answer.is_ours:
            self.failed("status %d, not from the server itself" % answer.status, began)
            raise Down(self.last_error)
        self.answered()
        return answer

    def _read_attach(self) -> bool:
        """True when attach.json names another door than the one that was just tried. Raises Gone when somebody has
        removed it, alone or with the job directory; storage that is away as a whole proves nothing."""
        if self._jobdir is None:
            return False
        self._attach_seen = self._attach_stamp()
        attach = read_attach(self._jobdir)
        if attach is None:
            root = self._jobdir.root
            if not self._jobdir.has(protocol.ATTACH_FILE) and any(map(os.path.isdir, (root, os.path.dirname(root)))):
                raise Gone("the job directory was released")
            return False
        generation, address, token = attach
        if generation > self.generation:
            raise Superseded("generation %d has this job now" % generation)
        if not address or generation < self.generation or (address, token) == (self.address, self.token):
            return False
        self._client.close()
        self.address, self.token = address, token
        self.used.append(address)
        self._client = Client(address, token, timeout=self.timeout_s, connect=self._connect)
        return True

    def _attach_stamp(self) -> Tuple[int, int]:
        if self._jobdir is None:
            return (0, 0)
        try:
            found = os.stat(self._jobdir.path(protocol.ATTACH_FILE))
        except OSError:
            return (0, 0)
        return found.st_ino, found.st_mtime_ns


def read_attach(jobdir: JobDir) -> Optional[Tuple[int, str, str]]:
    """(generation, socket, token) of attach.json, the last two empty when nobody is attached any more."""
    value: Optional[Dict[str, Any]] = jobdir.read_json(protocol.ATTACH_FILE)
    if value is None or not isinstance(value.get("generation"), int):
        return None
    address, token = value.get("socket"), value.get("token")
    if not isinstance(address, str) or not isinstance(token, str):
        address = token = ""
    return value["generation"], address, token


def write_attach(jobdir: JobDir, generation: int, address: str = "", token: str = "") -> None:
    value: Dict[str, Any] = {"generation": generation}
    if address:
        value.update(socket=address, token=token)
    jobdir.write_json(protocol.ATTACH_FILE, value)
