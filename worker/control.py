"""How the wish to stop, or to stop and keep, reaches the worker, and how it is seen to.

Three watchers: a thread in sigwait for SIGTERM, a thread on the descriptor that was stdin, and a
thread that looks at the ``control`` and ``lease`` files, at memory, and at progress held back. A
handler in Python would not run while C code does; these do whenever C code lets go of the
interpreter, and code that never does is left to the agent's SIGKILL.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Callable, Optional, Tuple

from . import processes, protocol
from .failures import OutOfMemory

if TYPE_CHECKING:
    from .ending import Ending
    from .spec import Spec

TICK_S = 0.2
READ_S = 1.0            # a file on shared storage is opened again this often, whatever its cached times say
MEMORY_S = 0.5
PATIENCE_S = 1.0        # for a trainer that saves nothing when stopped: how long it may take to end by itself
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def block_signals() -> None:
    """Blocks SIGTERM and SIGINT in this thread and those started later; children that fork get them back."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS))


def take_stdin() -> Optional[int]:
    """Duplicates descriptor 0, points 0 at /dev/null, and returns the duplicate (None when there is no stdin)."""
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        fd = os.dup(0)
    except OSError:
        fd = None
    os.dup2(null, 0)
    os.close(null)
    return fd


class Control:
    """The wishes that have come in. ``stopping`` is None or the reason; ``keep`` is the wish to stop and keep."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        self.stopping: Optional[str] = None
        self.keep = False
        self.grace = protocol.GRACE_SECONDS
        self.saves = False              # the trainer saves something when stopped: it gets most of the grace
        self._lock = threading.Lock()

    def stop(self, reason: str) -> None:
        """Notes the wish to cancel, once; a second one changes nothing. From now on the end is near whatever runs."""
        with self._lock:
            if self.stopping is not None:
                return
            self.stopping = reason
        _start(self._see_to_it)

    def _see_to_it(self) -> None:
        patience = self.grace * 0.8 if self.saves else min(PATIENCE_S, self.grace / 2.0)
        time.sleep(patience)
        self.ending.cancelled(self.stopping)

    # --- watchers ---------------------------------------------------------------------------

    def watch_signals(self) -> None:
        """Starts the thread that waits for SIGTERM and SIGINT. ``block_signals`` comes first."""
        def wait():
            while True:
                number = signal.sigwait(SIGNALS)
                self.stop("the worker got %s" % signal.Signals(number).name)
        _start(wait)

    def watch_stdin(self, fd: int) -> None:
        """Stops the worker when the pipe at ``fd`` reaches its end: the agent that held it is gone.

        Where the pipe has a name, another agent may open it again: it is given half the grace for that.
        """
        def wait():
            try:
                while True:
                    while os.read(fd, 4096):
                        pass
                    if not self._taken_up(fd):
                        break
            except OSError:
                pass
            self.stop("the agent that started this worker is gone")
        _start(wait)

    def _taken_up(self, fd: int) -> bool:
        """Whether somebody opens the pipe's other end again in time. The end of a pipe is POLLHUP, until then."""
        if not hasattr(select, "poll"):
            return False
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        until = time.monotonic() + self.grace / 2.0
        while time.monotonic() < until:
            if not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0)):
                return True
            time.sleep(TICK_S)
        return False

    def watch_files(self, spec: Spec) -> None:
        """Starts the thread that looks after the control file, the lease, memory and progress."""
        watches = [_control_watch(self, os.path.join(spec.workdir, protocol.CONTROL_FILE))]
        if spec.orphan.lease_s is not None:
            bound = spec.orphan.lease_s + spec.orphan.slack_s
            watches.append(_lease_watch(self, os.path.join(spec.workdir, protocol.LEASE_FILE), bound))
        if spec.limits.max_ram_mb is not None:
            watches.append(_memory_watch(self, spec.limits.max_ram_mb))
        watches.append(self.ending.events.tick)

        def run() -> None:
            complained = set()
            while True:
                for look in watches:
                    try:
                        look()
                    except Exception:           # one that cannot look must not blind the others
                        if look not in complained:
                            complained.add(look)
                            traceback.print_exc(file=sys.stderr)
                time.sleep(TICK_S)
        _start(run)


def _start(target: Callable[[], None]) -> None:
    threading.Thread(target=target, daemon=True).start()


def _stamp(path: str) -> Optional[Tuple[int, int, int]]:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _read(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as f:         # opening makes a network file system look again
            return f.read(4096)
    except OSError:
        return None


def _control_watch(control: Control, path: str) -> Callable[[], None]:
    last = {"stamp": None, "at": 0.0}

    def look():
        stamp, now = _stamp(path), time.monotonic()
        if stamp == last["stamp"] and now - last["at"] < READ_S:
            return
        last["stamp"], last["at"] = stamp, now
        word = (_read(path) or b"").strip()
        if word == protocol.CONTROL_STOP.encode():
            control.stop("cancelled")
        elif word == protocol.CONTROL_KEEP.encode():
            control.keep = True
    return look


def _lease_watch(control: Control, path: str, bound: float) -> Callable[[], None]:
    last = {"seen": None, "changed": time.monotonic(), "at": 0.0}

    def look():
        now = time.monotonic()
        if now - last["at"] < READ_S:
            return
        last["at"] = now
        seen = (_read(path), _stamp(path))
        if seen != last["seen"]:
            last["seen"], last["changed"] = seen, now
        elif now - last["changed"] > bound:
            control.stop("no sign of the agent for %.0f seconds" % bound)
    return look


def _memory_watch(control: Control, limit: float) -> Callable[[], None]:
    last = {"at": 0.0}

    def look():
        now = time.monotonic()
        if now - last["at"] < MEMORY_S:
            return
        last["at"] = now
        used = processes.resident_mb()
        if used > limit:
            print("resident memory is %.0f MiB, the limit is %.0f" % (used, limit), file=sys.stderr)
            control.ending.failed(OutOfMemory(
                "host out of memory: the worker held %.0f MB, more than max_ram_mb %.0f" % (used, limit),
                "raise model_training.max_ram_mb, or train on fewer or shorter items"))
    return look
