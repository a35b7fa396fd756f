"""The one way out. Whoever claims the end first ends the process; everybody else waits for ever.

The end may be reached by the main thread (success, failure) and by the watching threads (a
cancel that nobody polled for, memory over its limit) in the same instant: only one may speak.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn, Optional

from . import files, processes, protocol

if TYPE_CHECKING:
    from .events import EventWriter
    from .failures import WorkerError


class Ending:
    """Owns the last event and the exit code. ``exit_code_file`` is written by rename as the very last act."""

    def __init__(self, events: EventWriter, exit_code_file: Optional[str] = None) -> None:
        self.events = events
        self.exit_code_file = exit_code_file
        self._lock = threading.Lock()

    def claim(self) -> None:
        """Returns to the first caller; a later one never comes back from here."""
        if not self._lock.acquire(False):
            while True:
                time.sleep(3600)

    def cancelled(self, reason: Optional[str] = None) -> NoReturn:
        """The cancelled result and exit 4."""
        self.claim()
        fields = {"status": "cancelled"}
        if reason:
            fields["reason"] = reason
        self.events.emit("result", **fields)
        self.leave(protocol.EXIT_CANCELLED)

    def failed(self, error: WorkerError) -> NoReturn:
        """The error event of a WorkerError and its exit code."""
        self.claim()
        self.say(error)
        self.leave(error.exit_code)

    def say(self, error: WorkerError) -> None:
        self.events.emit("error", code=error.code, message=error.message, install_hint=error.hint or None,
                         exit_code=error.exit_code)

    def succeeded(self, **result: Any) -> NoReturn:
        """The succeeded result and exit 0; exit 1 when the result could not be written, since nobody would see it."""
        self.claim()
        written = self.events.emit("result", status="succeeded", **result)
        self.leave(protocol.EXIT_OK if written else protocol.EXIT_TRAINER_ERROR)

    def leave(self, code: int) -> NoReturn:
        """Ends the process at once, without the exit handlers of libraries: some hang, some crash after a success."""
        try:
            processes.kill_descendants()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            if self.exit_code_file:
                self.events.make_room()
                files.write_whole(self.exit_code_file, "%d\n" % code)
        finally:
            os._exit(code)
