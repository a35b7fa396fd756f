"""What reaches the agent beside answers: the end of its stdin, and signals."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any, Callable, Optional


class Ears:
    """``rest`` is the agent's only sleep. ``stdin_ended`` and ``asked_to_end`` turn true once and stay so."""

    def __init__(self, stdin: Optional[int] = None):
        self.stdin_ended = False
        self.asked_to_end = False
        self.times_asked = 0
        self._stdin = stdin
        self._farewell: Optional[Callable[[], None]] = None
        self._signalled: Optional[int] = None
        if stdin is not None:
            os.set_blocking(stdin, False)

    def listen_to_signals(self) -> None:
        """SIGTERM and Ctrl-C ask the agent to stop its worker and go; a vanished terminal asks for nothing."""
        self._signalled, written = os.pipe()  # what a signal writes here ends a sleep that has just begun, too
        for end in (self._signalled, written):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(written)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def at_the_end_of_stdin(self, act: Callable[[], None]) -> None:
        """What to do once, when it comes."""
        self._farewell = act

    def rest(self, seconds: float) -> None:
        """Sleeps, less long when something is heard."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return
            ears = [ear for ear in (self._stdin, self._signalled) if ear is not None]
            heard = select.select(ears, [], [], left)[0]
            if self._signalled in heard:
                os.read(self._signalled, 4096)
                return
            if self._stdin in heard and self._at_end():
                self.stdin_ended = True
                self._stdin = None
                if self._farewell is not None:
                    self._farewell()
                return

    def _at_end(self) -> bool:
        """Whatever comes over stdin after its first line says nothing to us; only its end does."""
        assert self._stdin is not None
        try:
            return not os.read(self._stdin, 4096)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _asked(self, *_: Any) -> None:
        self.asked_to_end = True
        self.times_asked += 1


def read_line(descriptor: int, seconds: float = 60.0, most: int = 1 << 16) -> bytes:
    """The first line of a pipe, without a byte of what follows it. Raises TimeoutError, ValueError."""
    line = b""
    until = time.monotonic() + seconds
    while not line.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise TimeoutError("nothing came on stdin")
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
        if len(line) > most:
            raise ValueError("the line on stdin is too long")
    return line
