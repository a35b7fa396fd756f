"""Taking a port, and saying who has it when it is taken."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path
from typing import Any

from ..schema.config import Config
from ..schema.errors import UserError


def bind(server: Any, host: str, port: int, config: Config) -> None:
    """Binds cheroot's server. Raises UserError, which names whoever holds the port."""
    try:
        server.prepare()
    except OSError as error:
        if not _is_taken(host, port):
            raise UserError(f"cannot listen on {host}, port {port}: {error}", "see --host and -p") from None
        by = _holder(port)
        hint = f"choose another with -p, for instance -p {port + 1}"
        if str(config.raw.get("port", "")) == str(port):
            hint += f"; {config.path.name} gives {port} to Potato itself"
        raise UserError(f"port {port} is taken" + (f" by {by}" if by else ""), hint) from None


def _is_taken(host: str, port: int) -> bool:
    """cheroot's own error no longer tells."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _holder(port: int) -> str:
    """The program that listens there, as far as /proc tells; "" when it does not (another user's, macOS)."""
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                    listening.add(f"socket:[{words[9]}]")
    for entry in Path("/proc").glob("[0-9]*/fd/*") if listening else ():
        with contextlib.suppress(OSError):
            if os.readlink(entry) in listening:  # noqa: PTH115 no file: `socket:[123]`
                pid = entry.parts[2]
                command = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                return f"{' '.join(command.split())[:100]} (process {pid})"
    return ""
