"""One command over ssh: what goes in, what comes out, and a bound on how long it may take."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO, Any

from .connection import Ssh, remote_command

_BLOCK = 1 << 16
#: What a login shell may print before our own first word.
_CHATTER = 1 << 16
_LONGEST_ANSWER = 16 << 20
_LOOK_S = 0.2
NO_ANSWER = "no answer"


class SshError(Exception):
    """ssh did not do it. ``stderr`` is what it said; ``timed_out`` when it said nothing in time."""

    def __init__(self, message: str, *, stderr: str = "", code: int | None = None, timed_out: bool = False):
        super().__init__(message)
        self.stderr, self.code, self.timed_out = stderr, code, timed_out


class Chatter(SshError):
    """Something printed text where our script should have answered."""


@dataclass(frozen=True)
class Result:
    """A command and what came of it. Printed, it is what one would type to do the same by hand."""

    argv: tuple[str, ...]
    script: str = ""                    # its name
    code: int | None = None             # the script's own
    values: dict[str, list[str]] = field(default_factory=dict)
    stderr: str = ""

    def __str__(self) -> str:
        return shlex.join(self.argv) + (f" < {self.script}" if self.script else "")

    def one(self, key: str, default: str = "") -> str:
        return self.values.get(key, [default])[-1]

    def all(self, key: str) -> list[str]:
        return self.values.get(key, [])


class Talk:
    """A running ssh. ``read`` and ``line`` raise SshError when the time is over; ``check`` may raise what it likes.

    Whatever is raised inside a ``with``, the process is gone after it.
    """

    def __init__(
        self, argv: tuple[str, ...], env: dict[str, str], feed: Iterable[bytes], *, hold_stdin: bool = False,
        stderr: IO[bytes] | None = None, check: Callable[[], None] = lambda: None,
    ):
        self.argv = argv
        self._check = check
        self._errors = stderr or tempfile.TemporaryFile()  # noqa: SIM115 closed in close()
        self._own_errors = stderr is None
        self._buffer = bytearray()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env, start_new_session=True,
        )
        assert self.process.stdout is not None
        self._out = self.process.stdout.fileno()
        self._feeder = threading.Thread(target=self._feed, args=(feed, hold_stdin), daemon=True)
        self._feeder.start()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _feed(self, feed: Iterable[bytes], hold: bool) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it ended before it had read everything
            for block in feed:
                stdin.write(block)
            stdin.flush()
        if not hold:
            with contextlib.suppress(OSError, ValueError):
                stdin.close()

    # --- reading ---------------------------------------------------------------------------------

    def read(self, most: int, until: float) -> bytes:
        """Up to ``most`` bytes as they come, b"" at the end. ``until`` by the monotonic clock."""
        if self._buffer:
            data = bytes(self._buffer[:most])
            del self._buffer[:most]
            return data
        while True:
            self._check()
            left = until - time.monotonic()
            if left <= 0:
                raise SshError("no answer in time", stderr=self.stderr(), timed_out=True)
            if select.select([self._out], [], [], min(left, _LOOK_S))[0]:
                return os.read(self._out, most)

    def line(self, until: float, longest: int = _CHATTER) -> bytes | None:
        """The next line without its end; None at the end of output."""
        while (at := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > longest:
                raise SshError("a line of the answer is too long")
            held, self._buffer = self._buffer, bytearray()
            try:
                block = self.read(_BLOCK, until)
            finally:
                self._buffer = held
            if not block:
                return None
            self._buffer += block
        line = bytes(self._buffer[:at])
        del self._buffer[:at + 1]
        return line

    def expect(self, mark: bytes, until: float) -> None:
        """Passes over what startup files print, up to our script's own first word."""
        passed = bytearray()
        while (line := self.line(until)) is not None:
            if line == mark + b" begin":
                return
            passed += line + b"\n"
            if len(passed) > _CHATTER:
                break
        code = self.ended(until)
        first = bytes(passed or self._buffer)[:80].decode("utf-8", "replace").strip()
        if code == 255 or (code not in (None, 0) and not first):
            raise SshError("ssh ended", stderr=self.stderr(), code=code)
        if not first:
            raise SshError(NO_ANSWER, stderr=self.stderr(), code=code)
        raise Chatter(first, stderr=self.stderr(), code=code)

    def answer(self, mark: bytes, until: float, on_value: Callable[[str, str], None] = lambda *_: None) -> Result:
        """The key=value lines up to the script's end word."""
        values: dict[str, list[str]] = {}
        size = 0
        end = mark + b" end "
        while (line := self.line(until)) is not None:
            if line.startswith(end):
                word = line[len(end):].strip()
                return Result(self.argv, "", int(word) if word.isdigit() else None, values)
            if line == mark + b" data":
                return Result(self.argv, "", None, values)
            key, equals, value = line.decode("utf-8", "replace").partition("=")
            size += len(line)
            if equals and size <= _LONGEST_ANSWER:
                values.setdefault(key, []).append(value)
                on_value(key, value)
        raise SshError("the answer broke off", stderr=self.stderr(), code=self.ended(until))

    # --- the end -----------------------------------------------------------------------------------

    def ended(self, until: float) -> int | None:
        """The exit code, once it is there; None when time was over first."""
        while self.process.poll() is None and time.monotonic() < until:
            self._check()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(min(_LOOK_S, max(0.01, until - time.monotonic())))
        return self.process.poll()

    def stderr(self) -> str:
        """The end of what ssh, or the script, said beside its answer."""
        if not self._own_errors or self._errors.closed:
            return ""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), 8192, max(0, size - 8192)).decode("utf-8", "replace")

    def hang_up(self) -> None:
        """Closes our end of its stdin."""
        if self.process.stdin is not None and not self._feeder.is_alive():
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._feeder.join(5)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._own_errors:
            self._errors.close()


def new_mark() -> bytes:
    return secrets.token_hex(16).encode()


def opening(script: str, mark: bytes, lines: Iterable[str]) -> list[bytes]:
    """The beginning of stdin: the script, the mark of its answer, and the lines that it reads."""
    return [script.encode("utf-8"), mark + b"\n", *(line.encode("utf-8") + b"\n" for line in lines)]


def run_script(
    ssh: Ssh, name: str, script: str, *lines: str, seconds: float, tail: Iterable[bytes] = (),
    check: Callable[[], None] = lambda: None, on_value: Callable[[str, str], None] = lambda *_: None,
    hold_stdin: bool = False,
) -> Result:
    """Runs a script on the host and gives its answer. Raises SshError, and what ``check`` raises.

    ``hold_stdin``: the end of its stdin tells the script that we are gone, and comes no sooner.
    """
    mark = new_mark()
    until = time.monotonic() + seconds
    argv = ssh.argv(command=remote_command(len(script.encode("utf-8"))))
    feed = [*opening(script, mark, lines)]
    blocks = (block for part in (feed, tail) for block in part)
    with Talk(argv, ssh.environment(), blocks, hold_stdin=hold_stdin, check=check) as talk:
        talk.expect(mark, until)
        said = talk.answer(mark, until, on_value)
        return Result(argv, name, said.code, said.values, talk.stderr())
