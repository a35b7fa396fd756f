"""The kept connection of a run, and the socket that leads back through it.

Every command goes over one connection. When the user keeps one of their own (ControlMaster), that is the
one: a login with a second factor or a smart card then serves. Otherwise we keep one in a private directory
of this machine. It ends by itself a minute after the last command, so that a supervisor killed at any
instant leaves no ssh behind for good.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...worker.jobdir import Identity, write_private
from ..bounds import bounds
from .connection import Ssh
from .talk import SshError, Talk

_PRIVATE = re.compile(r"/tmp/p-[0-9a-f]{8}\Z")  # noqa: S108
_MASTER = "master.json"
_LINGER_S = 60


def new_private_name() -> str:
    """A fresh name, on this machine or another, short enough for any unix socket in it."""
    return f"/tmp/p-{secrets.token_hex(4)}"  # noqa: S108


def nothing() -> None:
    """No reason to stop."""


class Line:
    """A connection to one host. ``directory`` is where ours lives; somebody has written that down already."""

    def __init__(self, facts: Mapping[str, Any], directory: str, check: Callable[[], None] = nothing):
        self.directory = Path(directory)
        self._theirs = Ssh.of(facts)
        self._ours = Ssh.of(facts, control=f"{directory}/c")
        self._check = check
        self.ssh = self._theirs
        self.is_ours = False
        self.session: Talk | None = None    # the agent's, as long as it lasts
        self._forwards: list[str] = []

    def is_theirs(self) -> bool:
        """Whether the user is logged in already: asking disturbs no host."""
        theirs = with_control(self._theirs)
        return theirs is not None and self._running(theirs)

    def up(self, *, avoid_theirs: bool = False) -> None:
        """Logs in, unless the user is logged in already. Raises SshError."""
        theirs = None if avoid_theirs else with_control(self._theirs)
        if theirs is not None and self._running(theirs):
            self.ssh, self.is_ours = theirs, False
            return
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self.directory.chmod(0o700)
        self._local(self._ours.argv("-f", "-N", "-M", "-o", f"ControlPersist={_LINGER_S}"), bounds().ssh_login_s)
        self.ssh, self.is_ours = self._ours, True
        pid = re.search(r"pid=(\d+)", self._local(self.ssh.word("check"), bounds().ssh_local_s))
        if pid:
            with contextlib.suppress(OSError):
                identity = Identity.of(int(pid[1]))
                write_private(str(self.directory / _MASTER), json.dumps(identity.to_json()) + "\n")

    def forward(self, there: str, here: str) -> None:
        """A socket on the host that ends at one of ours. Raises SshError."""
        pair = f"{there}:{here}"
        self._local(self.ssh.word("forward", "-R", pair), bounds().ssh_call_s)
        self._forwards.append(pair)

    def close(self, *, at_once: bool = False) -> None:
        """Hangs up; a connection of the user's stays, without our sockets. ``at_once``: it may not listen any more."""
        if self.session is not None:
            self.session.close()
            self.session = None
        if self.is_ours:
            hang_up(self._ours, str(self.directory), at_once=at_once)
        else:
            for pair in self._forwards:
                stop_forward(self.ssh, pair)
            remove_private(str(self.directory))
        self._forwards = []

    def stands(self) -> bool:
        """Whether the kept connection is there, as far as this machine can tell."""
        return self._running(self.ssh)

    def _running(self, ssh: Ssh) -> bool:
        try:
            local(ssh, ssh.word("check"), bounds().ssh_local_s)
        except SshError:
            return False
        return True

    def _local(self, argv: tuple[str, ...], seconds: float) -> str:
        return local(self.ssh, argv, seconds, self._check)


def local(ssh: Ssh, argv: tuple[str, ...], seconds: float, check: Callable[[], None] = nothing) -> str:
    """A call of ssh that runs nothing on the host; what it said. Raises SshError."""
    until = time.monotonic() + seconds
    with Talk(argv, ssh.environment(), (), check=check) as talk:
        code = talk.ended(until)
        said = talk.stderr()
        if code is None:
            raise SshError("no answer in time", stderr=said, timed_out=True)
        if code != 0:
            raise SshError("ssh ended", stderr=said, code=code)
        return said


def with_control(ssh: Ssh) -> Ssh | None:
    """``ssh`` with the socket of the connection that it would use: where the user's config has one. None without."""
    if ssh.control:
        return ssh
    until = time.monotonic() + bounds().ssh_local_s
    path = "none"
    with contextlib.suppress(SshError), Talk(ssh.argv("-G"), ssh.environment(), ()) as talk:
        while (line := talk.line(until)) is not None:
            key, _, value = line.decode("utf-8", "surrogateescape").partition(" ")
            if key == "controlpath":
                path = value
    return None if path == "none" else replace(ssh, control=path)


def hang_up(ssh: Ssh, directory: str, *, at_once: bool = False) -> None:
    """Ends a kept connection of ours by its directory, also one that another process made, or that is stopped."""
    if not _PRIVATE.match(directory) or not Path(directory).exists():
        return
    ssh = replace(ssh, control=f"{directory}/c")
    master = None
    with contextlib.suppress(OSError, ValueError):
        master = Identity.from_json(json.loads(Path(directory, _MASTER).read_text("utf-8")))
    if Path(ssh.control).exists() and not (at_once and master):
        with contextlib.suppress(SshError):
            local(ssh, ssh.word("exit"), bounds().ssh_local_s)
    with contextlib.suppress(OSError, ValueError):
        if master is not None and master.is_alive():
            os.kill(master.pid, signal.SIGKILL)
    remove_private(directory)


def stop_forward(ssh: Ssh, pair: str) -> None:
    """Takes a forwarded socket back from a connection that stays."""
    there = with_control(ssh)
    if there is not None:
        with contextlib.suppress(SshError):
            local(there, there.word("cancel", "-R", pair), bounds().ssh_local_s)


def remove_private(directory: str) -> None:
    """Removes a private directory of ours on this machine."""
    path = Path(directory)
    with contextlib.suppress(OSError):
        if _PRIVATE.match(directory) and path.lstat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
