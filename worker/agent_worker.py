"""The worker process, as its agent sees it: started here, or found running by an agent that came later."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from . import protocol
from .jobdir import Identity, JobDir, hostname


class StartFailed(Exception):
    """The worker could not be started; the sentence is for the user, and so is the remedy in ``hint``."""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


class Trouble(NamedTuple):
    """An error event about a worker that could not say itself why it ended."""

    code: str
    message: str
    hint: str


def left_alone(jobdir: JobDir) -> str:
    """A worker's own last word of why it stopped itself; "" when somebody stopped it, or it said nothing."""
    text = b""
    with contextlib.suppress(OSError), open(jobdir.path(protocol.EVENTS_FILE), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - protocol.TAIL_BYTES))
        text = file.read(protocol.TAIL_BYTES)
    for line in reversed(text.decode("utf-8", "replace").splitlines()):
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and event.get("event") == "result":
                reason = event.get("reason") if event.get("status") == "cancelled" else None
                return reason[:500] if isinstance(reason, str) and "the agent" in reason else ""
    return ""


class WorkerHandle:
    """What the agent needs of a worker, wherever it runs. Nothing here waits."""

    settle_s = 0.0  #: after the end, how long its files may take to be seen (shared storage)
    logs: Sequence[str] = (protocol.STDERR_FILE,)  #: files whose ends belong into the run log
    silent_since = 0.0  #: when the first event's time began to count, by the agent's clock

    def alive(self) -> bool:
        raise NotImplementedError

    def ask_to_stop(self) -> None:
        """The signal that hurries; ``control`` has said it already."""
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError

    def exit_code(self) -> Optional[int]:
        """After the end: the worker's own exit code, 128 + n when signal n ended it, None when nobody knows."""
        raise NotImplementedError

    @property
    def attempt(self) -> Optional[int]:
        """Which attempt is on where a scheduler may begin a job anew; None where that cannot be."""
        return None

    def heard(self, event: Mapping[str, Any]) -> None:
        """What the worker said in its events, each once."""

    def take_news(self) -> List[Dict[str, Any]]:
        """Events for the agent's own stream."""
        return []

    def explain(self, code: Optional[int], told: bool) -> Optional[Trouble]:
        """After an end that nobody here asked for; ``told``: the worker has said a last word itself."""
        return None

    def tick(self) -> None:
        """What has to be done now and then while the worker lives."""

    def close(self) -> None:
        """After the end: nothing of the worker is left behind."""


class LocalWorker(WorkerHandle):
    """A process of this machine, by its identity; ``child`` when this agent is its parent."""

    def __init__(
        self, jobdir: JobDir, identity: Identity, stdin: Optional[int],
        child: Optional["subprocess.Popen[bytes]"] = None, clock: Callable[[], float] = time.monotonic,
    ):
        self.identity = identity
        self.silent_since = clock()
        self._jobdir = jobdir
        self._stdin = stdin
        self._child = child

    def alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        return self.identity.is_alive()

    def ask_to_stop(self) -> None:
        self.identity.signal_group(signal.SIGTERM)

    def kill(self) -> None:
        self.identity.kill_group()

    def exit_code(self) -> Optional[int]:
        written = self._jobdir.read_exit_code(protocol.EXIT_CODE_FILE)
        if written is not None:
            return written
        if self._child is None or self._child.returncode is None:
            return None
        code = self._child.returncode
        code = 128 - code if code < 0 else code
        with contextlib.suppress(OSError):  # the disk is full: the code is reported all the same
            self._jobdir.write(protocol.EXIT_CODE_FILE, "%d\n" % code)
        return code

    def explain(self, code: Optional[int], told: bool) -> Optional[Trouble]:
        why = left_alone(self._jobdir) if code == protocol.EXIT_CANCELLED and told else ""
        if not why:
            return None
        return Trouble("left_alone", "The worker on %s stopped itself: %s" % (hostname(), why),
                       "start the run again; `on_disconnect: finish` lets a worker go on alone")

    def close(self) -> None:
        self.identity.kill_group()  # children that outlived it would keep the GPU
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None


def start_worker(
    jobdir: JobDir, command: List[str], environment: Dict[str, str], keep: Sequence[int] = ()
) -> LocalWorker:
    """Starts ``command`` in the job directory, in a session of its own. Raises StartFailed. ``keep`` are
    descriptors that it holds for its life.

    Its identity is written down by the new process itself, before it becomes the worker: an agent
    killed in any instant leaves either no worker or one that its successor finds.
    """
    for name in (protocol.EVENTS_FILE, protocol.STDERR_FILE):
        jobdir.touch(name)
    read_end, write_end = _stdin_pipe(jobdir)
    events = jobdir.open_append(protocol.EVENTS_FILE)
    errors = jobdir.open_append(protocol.STDERR_FILE)

    def sign() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        jobdir.write_json(protocol.WORKER_FILE, Identity.of(os.getpid()).to_json())

    try:
        child = subprocess.Popen(
            command, cwd=jobdir.root, env=environment, stdin=read_end, stdout=events, stderr=errors,
            start_new_session=True, pass_fds=tuple(keep), preexec_fn=sign,  # this agent has no threads
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        os.close(write_end)
        jobdir.remove(protocol.WORKER_FILE)
        if isinstance(error, FileNotFoundError):
            raise StartFailed("%s was not found on %s" % (command[0], hostname())) from None
        raise StartFailed("%s could not be started on %s: %s" % (command[0], hostname(), error)) from None
    finally:
        for descriptor in (read_end, events, errors):
            os.close(descriptor)
    identity = Identity.from_json(jobdir.read_json(protocol.WORKER_FILE))
    return LocalWorker(jobdir, identity or Identity(child.pid, child.pid, "", hostname()), write_end, child)


def find_worker(jobdir: JobDir) -> Optional[LocalWorker]:
    """The worker that an earlier agent started in this job directory, running or over; None when none was.

    Raises StartFailed when it was started on another machine: nothing can be said about it from here.
    """
    identity = Identity.from_json(jobdir.read_json(protocol.WORKER_FILE))
    if identity is None:
        return None
    if identity.host != hostname():
        raise StartFailed("this job's worker was started on %s, and this is %s" % (identity.host, hostname()))
    return LocalWorker(jobdir, identity, _hold_stdin(jobdir))


def _stdin_pipe(jobdir: JobDir) -> "tuple[int, int]":
    """(read end, write end) of the worker's stdin, whose end of file tells it that its agent is gone.

    A named one, so that an agent that comes later can hold it too; where the file system has no fifos,
    an unnamed one.
    """
    path = jobdir.path(protocol.WORKER_STDIN)
    jobdir.remove(protocol.WORKER_STDIN)
    try:
        os.mkfifo(path, 0o600)
        read_end = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.pipe()
    write_end = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(read_end, True)
    return read_end, write_end


def _hold_stdin(jobdir: JobDir) -> Optional[int]:
    with contextlib.suppress(OSError):  # ENXIO: nobody reads it any more
        return os.open(jobdir.path(protocol.WORKER_STDIN), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return None
