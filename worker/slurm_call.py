"""One call of a Slurm command at a time, without ever waiting for it: a busy controller answers when it likes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Callable, Dict, List, Optional, Tuple

from .slurm import Done, environment

_MOST = 1 << 20


class Call:
    """``done`` is None until the call has ended, or ``seconds`` are over and it was killed.

    ``out`` and ``err``: files for its output, which then outlives this process; else it goes through pipes.
    ``sign`` is called in the new process before it becomes the program.
    """

    def __init__(
        self, argv: List[str], cwd: str, seconds: float, *, out: Optional[str] = None, err: Optional[str] = None,
        sign: Optional[Callable[[], None]] = None, clock: Callable[[], float] = time.monotonic,
    ):
        self.argv = argv
        self.began = clock()
        self._clock, self._until = clock, clock() + seconds
        self._result: Optional[Done] = None
        self._files = (out, err)
        self._read: List[bytes] = [b"", b""]
        self._pipes: List[int] = []
        ends: List[int] = []
        try:
            for path in self._files:
                if path is not None:
                    ends.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
                else:
                    read_end, write_end = os.pipe()
                    os.set_blocking(read_end, False)
                    self._pipes.append(read_end)
                    ends.append(write_end)
            self._process = subprocess.Popen(
                argv, cwd=cwd, env=environment(os.environ), stdin=subprocess.DEVNULL, stdout=ends[0], stderr=ends[1],
                start_new_session=True, preexec_fn=sign,  # this agent has no threads
            )
        except FileNotFoundError:
            self._finish(Done(None, missing=True))
        except (OSError, subprocess.SubprocessError) as error:
            self._finish(Done(None, err="%s: %s" % (argv[0], error)))
        finally:
            for end in ends:
                os.close(end)

    def done(self) -> Optional[Done]:
        if self._result is not None:
            return self._result
        self._drain()
        code = self._process.poll()
        if code is not None:
            self._drain()
            self._finish(Done(code, self._text(0), self._text(1)))
        elif self._clock() >= self._until:
            self.end()
        return self._result

    def end(self) -> None:
        """Kills what still runs of the call."""
        if self._result is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel is left to itself
                self._process.wait(1.0)
            self._drain()
            self._finish(Done(None, self._text(0), self._text(1)))

    def _drain(self) -> None:
        """What is in the pipes now. A child of the program may hold them open for ever: no end is waited for."""
        for index, pipe in enumerate(self._pipes):
            with contextlib.suppress(BlockingIOError):
                while True:
                    block = os.read(pipe, 1 << 16)
                    if not block:
                        break
                    self._read[index] = (self._read[index] + block)[-_MOST:]

    def _text(self, index: int) -> str:
        path = self._files[index]
        data = self._read[index]
        if path is not None:
            with contextlib.suppress(OSError), open(path, "rb") as file:
                data = file.read(_MOST)
        return data.decode("utf-8", "replace")

    def _finish(self, result: Done) -> None:
        self._result = result
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = []


class Clerk:
    """Asks Slurm one thing after the other, and counts: ``calls`` is {program: number}, and ``counted`` is called
    whenever that has changed."""

    def __init__(
        self, calls: Dict[str, int], clock: Callable[[], float] = time.monotonic,
        counted: Callable[[], None] = lambda: None,
    ):
        self.calls = calls
        self._counted, self._clock = counted, clock
        self._call: Optional[Call] = None
        self._kind = ""

    @property
    def asking(self) -> str:
        """What is being asked, or ""."""
        return self._kind

    def ask(
        self, kind: str, argv: List[str], seconds: float, *, out: Optional[str] = None, err: Optional[str] = None,
        sign: Optional[Callable[[], None]] = None, cwd: str = "/",
    ) -> None:
        """Only what needs the job directory is called there: another login node may have removed it, and the job's end
        must be learnt all the same."""
        self.drop()
        self.calls[argv[0]] = self.calls.get(argv[0], 0) + 1
        self._counted()
        self._kind = kind
        self._call = Call(argv, cwd, seconds, out=out, err=err, sign=sign, clock=self._clock)

    def answer(self) -> Optional[Tuple[str, Done, float]]:
        """(what was asked, how it ended, when it was asked) once; None while nothing came."""
        done = None if self._call is None else self._call.done()
        if done is None or self._call is None:
            return None
        kind, began = self._kind, self._call.began
        self._call, self._kind = None, ""
        return kind, done, began

    def drop(self) -> None:
        if self._call is not None:
            self._call.end()
        self._call, self._kind = None, ""


def has_program(name: str) -> bool:
    """True when PATH leads to an executable of this name."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.access(os.path.join(folder or ".", name), os.X_OK):
            return True
    return False
