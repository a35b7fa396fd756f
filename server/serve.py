"""A server of its own: binds, serves, keeps a supervisor up while there is work, and stops when told."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from typing import Any

from ..runtime.http_server import make_server
from ..schema.report import line_of
from .app import make_app
from .auto import Automatic
from .keeper import Keeper
from .ports import bind
from .settings import settings
from .study import Study

DEFAULT_PORT = 8000
#: Between two looks whether work waits without a supervisor.
_LOOK_S = 1.0
_THREADS = 16


def serve(
    config: str, *, host: str = "127.0.0.1", port: int | None = None, names: tuple[str, ...] = (),
    prefix: str | None = None, behind_proxy: bool = False,
) -> int:
    """Serves until SIGTERM or Ctrl-C; the exit code. Raises ConfigError, and UserError for a port that is taken."""
    study = Study(config)
    for finding in study.checked().warnings:
        _say(line_of(config, finding))
    checked = study.config()
    if not checked.training["enabled"]:
        _say(f"warning: model_training.enabled is false in {config}: no run can be started")
    given = settings(
        checked, study.places.root, host=host, names=names, prefix=prefix, behind_proxy=behind_proxy
    )
    auto = Automatic(study)
    wanted = DEFAULT_PORT if port is None else port
    server = make_server(make_app(study, given, auto), (host, wanted), threads=_THREADS)
    bind(server, host, wanted, checked)
    stop = _Stop()
    thread = threading.Thread(target=server.serve, name="http", daemon=True)
    thread.start()
    bound = server.socket.getsockname()[1]
    _greet(host, bound, given)
    keeper = Keeper(study, auto, _LOOK_S, say=lambda text: _say(f"warning: {text}"))
    keeper.start()
    stop.event.wait()
    keeper.stop()
    _say("stopping; runs go on without this server")
    with contextlib.suppress(OSError):
        server.stop()
    thread.join(5)
    auto.close()
    return stop.code


class _Stop:
    """SIGTERM and Ctrl-C end the server in good order; a second one at once."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.code = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told)

    def _told(self, number: int, _frame: Any) -> None:
        if self.event.is_set():
            os._exit(128 + number)
        self.code = 130 if number == signal.SIGINT else 0
        self.event.set()


def _greet(host: str, port: int, given: Any) -> None:
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104
    shown = f"[{name}]" if ":" in name else name
    print(f"Training page: http://{shown}:{port}{given.prefix}/admin/training", flush=True)
    if given.key_is_ours:
        print(f"The config has no admin_api_key. For this start the key is:\n\n  {given.admin_key}\n", flush=True)
    if given.debug:
        print("debug: true: whoever sits at this machine needs no key", flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
