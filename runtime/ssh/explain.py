"""What ssh said, in the words that users search for, with the remedy."""

from __future__ import annotations

import re

from ..launchers import ConnectionLost, LaunchError, Unwelcome
from .connection import Ssh
from .talk import NO_ANSWER, Chatter, SshError

_NOISE = re.compile(
    r"^(debug\d|Warning: Permanently added|Connection to .* closed|Shared connection|mux_client|OpenSSH_|"
    r"Control socket|\*\* )", re.IGNORECASE)
_NO_ENTRY, _NOT_KNOWN = "Permission denied", "Host key verification failed"
_PREFIX = re.compile(
    r"^(ssh: |connect to host \S+ port \d+: |kex_exchange_identification: |ssh_exchange_identification: |"
    r"Received disconnect from \S+ port \d+:\d+: )+")
#: Not the words of a startup file that may not read something.
_DENIED = re.compile(r"^(\S+: )?Permission denied \(")


def failure(way: Ssh, error: SshError) -> LaunchError:
    """The reason for a record and its remedy. ConnectionLost when another try may do, Unwelcome when hardly."""
    host, login = way.host, way.by_hand()
    if isinstance(error, Chatter):
        return LaunchError(
            f'host {host} prints text before our command (first bytes: "{error}")',
            "make its startup files silent for non-interactive shells",
        )
    said = reason(error)
    if said == _NO_ENTRY:
        return Unwelcome(
            f"ssh to {host} failed: {said}",
            f"a key that works without a prompt is needed: `{login} true` must succeed from the server's account",
        )
    if said == _NOT_KNOWN:
        return Unwelcome(f"ssh to {host} failed: {said}", _host_key(login, host, error.stderr))
    if "remote port forwarding failed" in error.stderr or "forwarding request failed" in error.stderr:
        return LaunchError(
            f"{host} does not allow forwarded sockets (AllowStreamLocalForwarding)",
            "its administrator can allow them for this account in sshd_config: AllowStreamLocalForwarding yes",
        )
    hint = f"`{login} true` must succeed from the server's account, without a prompt"
    if error.code == 0 and str(error) == NO_ANSWER:
        hint = ("our command was not run, or got no input: a forced command of that account (command=, ForceCommand), "
                "or StdinNull in ~/.ssh/config")
    return ConnectionLost(f"ssh to {host} failed: {said}", hint)


def _host_key(login: str, host: str, stderr: str) -> str:
    if "HAS CHANGED" in stderr or "Offending" in stderr:
        remove = re.search(r"ssh-keygen -f .*|ssh-keygen -R .*", stderr)
        command = remove[0].strip() if remove else f"ssh-keygen -R {host}"
        return f"the host's key has changed: check with its administrators, then mend known_hosts: {command}"
    return f"log in once by hand to accept the key ({login}), or mend known_hosts"


def reason(error: SshError) -> str:
    """One line: the last that ssh said of its own, else what we saw."""
    for line in reversed(error.stderr.splitlines()):
        line = line.strip()
        if line.startswith(_NOT_KNOWN):
            return _NOT_KNOWN
        if _DENIED.match(line):
            return _NO_ENTRY
        if line and not _NOISE.match(line):
            return _PREFIX.sub("", line).rstrip(".")[:300]
    if error.timed_out:
        return "no answer in time"
    return f"{error} (exit code {error.code})" if error.code is not None else str(error)
