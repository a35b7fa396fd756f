"""The way to a host, as a value: which words ssh is called with."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..bounds import bounds


@dataclass(frozen=True)
class Ssh:
    """A host by the name that the config has for it; what is not set is left to the user's ssh config.

    ``control`` is the socket of a kept connection of our own; empty leaves that to the user's config
    too. ``alive_s`` is how often the kept connection is asked whether it lives; after three questions
    without an answer ssh ends it.
    """

    host: str
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    control: str = ""
    alive_s: int = 15
    program: str = field(default="ssh", repr=False)

    @classmethod
    def of(cls, facts: Mapping[str, Any], *, control: str = "") -> Ssh:
        """From the facts of a place, as they are kept with a run."""
        return cls(facts["host"], facts.get("user"), facts.get("port"), facts.get("identity_file"), control,
                   int(facts.get("alive_s") or 15))

    def argv(self, *options: str, command: str | None = None) -> tuple[str, ...]:
        """The whole command line. ``--`` keeps a host that begins with a dash from being an option."""
        words = [self.program, "-T", "-a", "-x", "-o", "BatchMode=yes",
                 "-o", f"ConnectTimeout={max(1, round(bounds().ssh_connect_s))}",
                 "-o", f"ServerAliveInterval={self.alive_s}", "-o", "ServerAliveCountMax=3",
                 "-o", "RequestTTY=no", "-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no",
                 "-o", "ClearAllForwardings=yes",
                 "-o", "LogLevel=INFO"]  # its words are what a failure is told with, whatever the user's config hides
        if self.control:
            words += ["-S", _literal(self.control)]
        for flag, value in (("-l", self.user), ("-p", self.port)):
            if value is not None:
                words += [flag, str(value)]
        return (*words, *self._identity(), *options, "--", self.host, *(() if command is None else (command,)))

    def _identity(self) -> tuple[str, ...]:
        """``-i`` looks for the file as it is written and later puts something in the place of each ``%`` in it."""
        if self.identity_file is None or "%" not in self.identity_file:
            return () if self.identity_file is None else ("-i", self.identity_file)
        quoted = re.sub(r'[\\"]', r"\\\g<0>", _literal(self.identity_file))
        return ("-o", f'IdentityFile="{quoted}"')

    def word(self, verb: str, *options: str) -> tuple[str, ...]:
        """Says something to the kept connection at ``control``. The user's config is not read: what it forwards would
        be forwarded, or taken back, along with ours."""
        return (self.program, "-F", "none", "-S", _literal(self.control), "-O", verb, *options, "--", self.host)

    def by_hand(self) -> str:
        """What a person types to log in as we do."""
        given = (("-l", self.user), ("-p", self.port), ("-i", self.identity_file))
        return shlex.join(["ssh", *(str(word) for pair in given if pair[1] is not None for word in pair), self.host])

    def environment(self) -> dict[str, str]:
        """Our own, SSH_AUTH_SOCK included; but nobody is there to type into a window that asks for a password."""
        return {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}


def _literal(path: str) -> str:
    """For where ssh expands ``%``."""
    return path.replace("%", "%%")


def local_path(text: str | None, folder: Path) -> str | None:
    """A path of the config on this machine: ``~`` is our home, relative ones start at the config's directory."""
    return None if text is None else str(folder / Path(text).expanduser())


def remote_command(script_bytes: int) -> str:
    """What the login shell there is given: the first bytes of stdin are a script for sh, the rest is the script's.

    One line that sh, bash, dash, fish, csh and tcsh read alike. ``sh -s`` would not do: dash reads ahead and
    swallows what follows the script (seen with dash 0.5.12).
    """
    return f"exec /bin/sh -c 'eval \"$(dd bs=1 count={script_bytes} 2>/dev/null)\"'"
