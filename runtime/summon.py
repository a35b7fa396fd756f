"""The project's supervisor from outside: does one run, and starting one on demand."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import Any

from ..schema.errors import UserError
from .bounds import bounds
from .places import Places


def supervisor_runs(where: Places) -> bool:
    """True when some process holds the project's supervisor lock."""
    try:
        descriptor = os.open(where.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


#: The supervisors that this process started, by project, and how many of them ended with an error.
_started: dict[Places, Any] = {}
_crashes: dict[Places, int] = {}
#: A supervisor that crashes once may have met a fault of the moment; this often, and it is the machine's.
_MOST_CRASHES = 3


def ensure_supervisor(where: Places) -> None:
    """Starts the project's supervisor when none runs, and waits until one holds the lock.

    Raises UserError with the end of its log when it does not come up, or comes up and breaks again and again.
    """
    if supervisor_runs(where):
        return
    import subprocess
    import sys

    before = _started.pop(where, None)
    if before is not None and (before.poll() or 0) > 0:  # a killed one (below 0) is simply replaced
        _crashes[where] = _crashes.get(where, 0) + 1
        if _crashes[where] >= _MOST_CRASHES:
            raise _does_not_start(where)
    where.prepare()
    log = os.open(where.supervisor_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "potato_training.runtime.supervisor", str(where.task_dir)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=where.root,
        )
    finally:
        os.close(log)
    _started[where] = child
    give_up = time.monotonic() + bounds().supervisor_start_s
    while not supervisor_runs(where):
        # 0 before we saw the lock: it found nothing to do, or another one was quicker
        if child.poll() == 0:
            return
        if child.poll() is not None or time.monotonic() > give_up:
            with suppress(OSError):
                child.kill()
            raise _does_not_start(where)
        time.sleep(0.02)


def _does_not_start(where: Places) -> UserError:
    return UserError(
        "the project's supervisor did not start", f"{where.supervisor_log} says why: {_last_line(where)}"
    )


def _last_line(where: Places) -> str:
    lines = where.supervisor_log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else "it is empty"
