"""The one process of a project that makes things happen: ``python -m potato_training.runtime.supervisor TASK_DIR``.

It holds a lock for its life, drives runs (a thread each), takes in what agents say on a private
socket, lets go of what ended runs held elsewhere, and ends when nothing of this is left. It may be
killed at any instant: whoever starts the next one finds every intent in the ledger.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..worker.jobdir import write_private
from ..worker.protocol import CANCELLED, QUEUED
from . import claims, debts, launchers, leftovers, life, runlog, tokens
from .agent_routes import make_app
from .bounds import bounds
from .clocks import Switchboard
from .drive import Drive
from .intake import Intake
from .listener import Listener, remove_socket
from .notify import Deliveries
from .places import Places
from .settle import settle
from .store import Release, Run, Store

_SOCKET = re.compile(r"/tmp/p-[0-9a-f]{8}/s\Z")  # noqa: S108 as the listener makes it


class BrokenLedger(Exception):
    """Going on would do the same again and again: the supervisor ends, and its starter is told."""


class Supervisor:
    def __init__(self, where: Places):
        self._places = where
        self._store = Store(where.store)
        self._switchboard = Switchboard()
        self._listener = Listener(make_app(Intake(self._store, where, self._switchboard.heard)))
        self._drives: dict[str, threading.Thread] = {}
        self._leaving: dict[str, Callable[[], None]] = {}
        self._broken: set[str] = set()
        self._releasing: dict[str, threading.Thread] = {}
        self._release_after: dict[str, float] = {}
        self._first_tried: dict[str, float] = {}
        self._deliveries = Deliveries(self._store, where)
        self._stop = threading.Event()

    def run(self) -> None:
        """Works until nothing is left to do, or until ``stop``."""
        self._clear_old_socket()
        leftovers.sweep(time.time())
        socket = str(self._listener.start())
        try:
            about = {"pid": os.getpid(), "socket": socket}
            write_private(str(self._places.root / "supervisor.json"), json.dumps(about) + "\n")
            while not self._stop.is_set() and self._tick(socket):
                self._switchboard.wait(bounds().tick_s)
        finally:
            # Agents keep their workers meanwhile and go on with the next supervisor.
            self._listener.stop()
            for leave in list(self._leaving.values()):
                leave()

    def stop(self) -> None:
        self._stop.set()
        self._switchboard.wake()

    def idle(self) -> bool:
        """Nothing is queued, running, to be released or to be told. What rests is tried here once."""
        return not self._store.open_runs() and not self._deliveries.owed() and not any(
            release.run_id in self._releasing or release.run_id not in self._first_tried
            or not debts.rests(self._store, release) for release in self._store.releases()
        )

    def _tick(self, socket: str) -> bool:
        for run_id, thread in list(self._drives.items()):
            if not thread.is_alive():
                if run_id in self._broken:
                    raise BrokenLedger("what a run came to could not be written down; see above")
                del self._drives[run_id], self._leaving[run_id]
        runs = self._store.open_runs()
        executing = next((run.run_id for run in runs if run.state in life.EXECUTING or (
            run.state == QUEUED and run.run_id in self._drives and not _asks(run))), "")
        for run in runs:
            if run.run_id in self._drives:
                continue
            if run.state == QUEUED:
                if run.wish == "cancel":
                    self._cancel_queued(run)
                elif _asks(run):  # its bundle is built, and an agent waited for; it holds nobody back
                    self._drive(run, socket)
                elif not executing:
                    executing = run.run_id
                    self._drive(run, socket)
                elif run.step != (line := f"waits for run {executing}"):
                    self._store.note(run.run_id, step=line)
            else:  # left behind by a supervisor that was killed
                self._drive(run, socket)
        for release in self._store.releases():
            self._release(release)
        self._deliveries.tick()
        return bool(runs or self._drives or not self.idle())

    def _drive(self, run: Run, socket: str) -> None:
        drive = Drive(
            run.run_id, self._store, self._places, self._switchboard, socket, lambda: self._broken.add(run.run_id)
        )
        thread = threading.Thread(target=drive.run, name=run.run_id, daemon=True)
        self._drives[run.run_id] = thread
        self._leaving[run.run_id] = drive.leave
        thread.start()

    def _cancel_queued(self, run: Run) -> None:
        self._store.advance(run.run_id, CANCELLED, reason="cancelled before it started", step="")
        settle(self._store, self._places, run.run_id)

    def _release(self, release: Release) -> None:
        """Begins to let go of what a run held, in a thread of its own: a far host may take its time."""
        run = self._store.get(release.run_id)
        running = self._releasing.get(release.run_id)
        if running is not None:
            if not running.is_alive():
                del self._releasing[release.run_id]  # the next look at the ledger tells whether it was enough
            return
        if (run is not None and not run.over) or time.monotonic() < self._release_after.get(release.run_id, 0):
            return
        if release.run_id in self._drives:  # it may still be fetching
            return
        self._first_tried.setdefault(release.run_id, time.monotonic())
        reported = run is not None and "report" in run.facts
        thread = threading.Thread(target=self._let_go, args=(release, reported), name=release.run_id, daemon=True)
        self._releasing[release.run_id] = thread
        thread.start()

    def _let_go(self, release: Release, reported: bool) -> None:
        try:
            lines = launchers.release(
                release.kind, self._places, release.run_id, release.target,
                patience_s=bounds().farewell_s if reported else 0,
            )
        except Exception as error:  # whatever it is, the duty stays
            if not isinstance(error, (OSError, launchers.LaunchError)):
                traceback.print_exc(file=sys.stderr)
            self._still_owed(release, error)
            return
        runlog.log(self._places.run_dir(release.run_id), *lines)
        self._store.released(release.run_id)
        self._store.drop_token(tokens.RUN, release.run_id)
        self._switchboard.wake()

    def _still_owed(self, release: Release, error: Exception) -> None:
        now, why = time.monotonic(), str(error)
        rested = debts.rests(self._store, release)
        if rested or now - self._first_tried[release.run_id] > bounds().release_give_up_s:
            why = debts.give_up(self._store, release, why)
        if release.tries == 0 or (why.endswith(debts.RESTS) and not rested):
            runlog.log(self._places.run_dir(release.run_id), f"still to be released: {why}")
        self._store.release_failed(release.run_id, why)
        self._release_after[release.run_id] = now + debts.pause_s(release.tries, error)

    def _clear_old_socket(self) -> None:
        """A supervisor that was killed leaves its socket's folder behind."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):  # whatever stands in there
            old = Path(json.loads((self._places.root / "supervisor.json").read_text("utf-8"))["socket"])
            if _SOCKET.match(str(old)) and old.parent.lstat().st_uid == os.getuid():
                remove_socket(old)


def _asks(run: Run) -> bool:
    """A run for which an agent must ask for work."""
    return run.facts.get("backend_type") == claims.KIND


def _lock(where: Places) -> int | None:
    descriptor = os.open(where.lock, os.O_RDWR | os.O_CREAT, 0o600)
    give_up = time.monotonic() + bounds().lock_patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > give_up:
                os.close(descriptor)
                return None
            time.sleep(0.02)


def main(task_dir: Path) -> int:
    """Supervises a project until nothing is left to do. 0 also when another supervisor is at it already."""
    where = Places(task_dir.resolve())
    where.prepare()
    os.umask(0o077)
    while True:
        lock = _lock(where)
        if lock is None:
            return 0
        supervisor = Supervisor(where)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: supervisor.stop())  # noqa: B023 the one of this round
        supervisor.run()
        os.close(lock)
        # A front door may have inserted a run while the lock was still held, and relied on us.
        if supervisor._stop.is_set() or supervisor.idle():
            return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except Exception:
        print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), file=sys.stderr)
        traceback.print_exc()
        sys.exit(1)
