"""A private door for agents that come through a tunnel: a unix socket that serves their routes only.

It is the far end of an ssh forward, and what a local agent connects to. Requests that arrive here never
look like loopback requests to the annotation server, whatever its debug setting.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Listener:
    """Serves a WSGI app on ``<base>/p-<8 hex>/s``: a 0600 socket in a 0700 directory of its own.

    The path is short because a unix socket's may have 107 bytes at most, and because the same shape
    is used on hosts where TMPDIR is long.
    """

    def __init__(self, app: Callable[..., Any], *, base: str = "/tmp", threads: int = 4):  # noqa: S108
        self._app = app
        self._base = Path(base)
        self._threads = threads
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self.socket: Path | None = None  #: where it listens, while it does

    def start(self) -> Path:
        """Binds, serves in a thread of its own, and returns the socket's path. Raises OSError."""
        from .http_server import make_server

        directory = self._new_directory()
        path = directory / "s"
        try:
            server = make_server(self._app, str(path), threads=self._threads)
            server.prepare()
            path.chmod(0o600)  # cheroot makes it 0777; until here the directory alone kept others out
        except BaseException:
            remove_socket(path)
            raise
        self._server, self.socket = server, path
        self._thread = threading.Thread(target=server.serve, name="agent-listener", daemon=True)
        self._thread.start()
        return path

    def stop(self) -> None:
        """Closes the door and removes it; requests that are being answered get two seconds."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.stop()
        if self._thread is not None:
            self._thread.join(5)
        if self.socket is not None:
            remove_socket(self.socket)
            self.socket = None

    def __enter__(self) -> Listener:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _new_directory(self) -> Path:
        while True:
            directory = self._base / f"p-{secrets.token_hex(4)}"
            try:
                directory.mkdir(mode=0o700)
            except FileExistsError:
                continue
            directory.chmod(0o700)
            return directory


def remove_socket(path: Path) -> None:
    """Removes a listener's socket and its directory, also one that a killed process left behind."""
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(OSError):
        path.parent.rmdir()
