"""The local backend: the agent is a child process of the supervisor, in a session of its own.

It outlives a supervisor that is killed; the next one starts another agent on the same job directory,
which finds the first one there, tells it the new socket and leaves.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...worker.jobdir import Identity, JobDir
from ...worker.protocol import AGENT_LOCK, ARTIFACTS_DIR, STDERR_FILE, TAIL_BYTES, WORKER_FILE
from .. import places
from ..bounds import bounds
from ..places import Places
from . import Desk, LaunchError


class LocalLauncher:
    place = address = "this machine"

    def __init__(self, where: Places, run_id: str, desk: Desk, target: Mapping[str, Any]):
        self._desk = desk
        self._held = dict(target)
        self._places = where
        self._run_id = run_id
        self._job_dir = where.job_dir(run_id)
        self._child: subprocess.Popen[bytes] | None = None

    def started(self) -> bool:
        return self._job_dir.exists()

    def launch(self, socket: str, new_token: Callable[[], str], *, known: bool = False) -> bool:
        if known and not self._job_dir.exists():
            raise LaunchError("The run's job directory is gone", "something removed it; start the run again")
        log = os.open(
            self._places.run_dir(self._run_id) / places.AGENT_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        JobDir(self._job_dir).create()
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "potato_training.worker.agent", "--job-dir", str(self._job_dir)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True, cwd=self._job_dir,
            )
        except OSError as error:
            raise LaunchError(f"The agent could not be started on this machine: {error}") from None
        finally:
            os.close(log)
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps({"socket": socket, "token": new_token()}).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it is gone; what it says, or does not, tells below
        answer = _first_line(child)
        if not answer:
            child.kill()
            child.wait()
            raise LaunchError("The agent could not be started on this machine", "agent.log has its last output")
        self._hold("agent", _agent(self._job_dir))
        # A child that attached has ended; the agent that was there before is not a child of ours.
        self._child = None if answer.startswith("attached") else child
        return self._child is not None

    def _hold(self, what: str, process: Identity | None) -> None:
        """Writes down a process of the run, so that it can be ended also when its job directory is gone."""
        if process is not None and self._held.get(what) != process.to_json():
            self._held[what] = process.to_json()
            self._desk.owe(self._held)

    def trouble(self) -> str:
        if "worker" not in self._held:
            self._hold("worker", _worker(self._job_dir))
        if not self._job_dir.exists():
            return "the run's job directory is gone"
        if self._child is not None:
            code = self._child.poll()
            if code is None:
                return ""
            return f"the agent on this machine ended ({_ending(code)})"
        agent = _agent(self._job_dir)
        return "" if agent is not None and agent.is_alive() else "the agent on this machine is gone"

    def lost(self, silent_s: float) -> str:
        """Nothing lies between us and the agent that could break."""
        return ""

    def leave(self) -> None:
        """The agent and its worker are in sessions of their own."""

    def fetch(self) -> list[str]:
        source = self._job_dir / ARTIFACTS_DIR
        destination = self._places.run_dir(self._run_id) / places.ARTIFACTS
        if not source.is_dir():
            return [] if destination.is_dir() else ["the worker left no model files"]
        try:
            shutil.rmtree(destination, ignore_errors=True)
            shutil.move(source, destination)
        except OSError as error:
            return [f"the model files stay in {source}: {error}"]
        return []


def release_local(where: Places, run_id: str, target: Mapping[str, Any], patience_s: float) -> list[str]:
    """Ends whatever of the run's agent and worker is left, then removes the job directory.

    Raises LaunchError when a process does not die.
    """
    job_dir = where.job_dir(run_id)
    found = [_agent(job_dir), _worker(job_dir), *(Identity.from_json(target.get(what)) for what in ("agent", "worker"))]
    alive = _left([process for process in found if process is not None], patience_s)
    for process in alive:
        process.signal_group(signal.SIGKILL)
    if stuck := _left(alive, bounds().kill_s):
        raise LaunchError(f"processes of this run do not die: groups {[process.pgid for process in stuck]}")
    lines = ["ended what was left of the run on this machine"] if alive else []
    if alive or not patience_s:  # nobody has reported the run, and its last output
        lines += _stderr_tail(job_dir)
    if job_dir.exists():
        shutil.rmtree(job_dir)
    return lines


def _left(processes: list[Identity], patience_s: float) -> list[Identity]:
    """Those whose groups still live after waiting so long for their end."""
    give_up = time.monotonic() + patience_s
    while (alive := [process for process in processes if process.group()]) and time.monotonic() < give_up:
        time.sleep(0.02)
    return alive


def _agent(job_dir: Path) -> Identity | None:
    """The job's agent, when one holds its lock now."""
    from ...worker.jobdir import Lock

    lock = Lock(str(job_dir / AGENT_LOCK))
    try:
        if not lock.held():
            return None
        return Identity.of(int(lock.holder()["pid"]))
    except (OSError, KeyError, ValueError):
        return None


def _worker(job_dir: Path) -> Identity | None:
    return Identity.from_json(JobDir(job_dir).read_json(WORKER_FILE))


def _stderr_tail(job_dir: Path) -> list[str]:
    try:
        with (job_dir / STDERR_FILE).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return [f"stderr: {line}" for line in file.read().decode("utf-8", "replace").splitlines()]
    except OSError:
        return []


def _first_line(child: subprocess.Popen[bytes]) -> str:
    """The agent's first line, or "" when it ended or said nothing in time."""
    assert child.stdout is not None
    line, give_up = b"", time.monotonic() + bounds().agent_start_s
    with child.stdout:
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, give_up - time.monotonic()))
            piece = os.read(child.stdout.fileno(), 4096) if ready else b""
            if not piece:
                return ""
            line += piece
    return line.decode("utf-8", "replace").strip()


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
