"""What the front doors (command, page, plugin) may do: insert runs, read them, leave wishes.

Nothing here trains, connects or kills. The one supervisor of the project does, and is started here
when none runs.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..schema.errors import UsageError, UserError
from . import launchers
from .bounds import bounds
from .places import Places, new_run_id
from .store import Run, Store

if TYPE_CHECKING:
    from ..schema.config import Config



class RequestError(UsageError):
    """What was asked for does not fit this config: wrong usage. ``field`` names the part of the request."""

    def __init__(self, field: str, message: str, hint: str = ""):
        super().__init__(message, hint)
        self.field = field


def submit(
    config: Config, *, trainer: str | None = None, schemas: Sequence[str] = (), backend: str | None = None,
    params: Mapping[str, Any] | None = None, trigger: str = "cli",
) -> Run:
    """Checks a request against the config and puts it into the queue.

    Defaults: trainer ``sklearn-text``; the schemas of writeback that the trainer can train, else all
    that it can; backend ``model_training.backend``. Raises UserError naming what is wrong.
    """
    from ..worker.trainers import catalogue

    require_enabled(config)
    known = catalogue(plugins=True)
    name = trainer or "sklearn-text"
    if name not in known:
        raise RequestError("trainer", f"there is no trainer {name!r}", f"the trainers are: {', '.join(sorted(known))}")
    info = known[name]
    place = _backend(config, name, info, backend)
    chosen = _schemas(config, info, schemas)
    checked = _params(info, params or {})
    where = Places(config.task_dir)
    where.prepare()
    return Store(where.store).insert(
        new_run_id(), trainer=name, schemas=chosen, params=checked, backend=place,
        config=os.path.relpath(config.path, config.task_dir), trigger=trigger, started_by=_user(),
    )


def require_enabled(config: Config) -> None:
    if not config.training["enabled"]:
        raise UserError(
            f"model training is switched off in {config.path.name}", "set model_training.enabled: true to switch it on"
        )


def _backend(config: Config, trainer: str, info: Any, wanted: str | None) -> str:
    name = wanted or config.training["backend"]
    if info.backends is not None and wanted is None:
        name = info.backends[0]
    if name not in config.backends:
        known = ", ".join(config.backends)
        raise RequestError("backend", f"there is no backend {name!r}", f"the backends are: {known}")
    kind = config.backends[name].type
    if info.backends is not None and kind not in info.backends:
        raise RequestError(
            "backend", f"{trainer} runs on the {' or '.join(info.backends)} backend only", "leave --backend out"
        )
    if kind not in launchers.KINDS:
        raise RequestError(
            "backend", f"backend {name!r} is of type {kind}, where this version cannot start runs yet",
            f"potato compile --backend {name} shows its scripts; --backend local trains on this machine",
        )
    return name


def _schemas(config: Config, info: Any, wanted: Sequence[str]) -> tuple[str, ...]:
    schemes = {scheme.name: scheme for scheme in config.schemes}
    can = [name for name, scheme in schemes.items() if scheme.kind in info.kinds]
    for name in wanted:
        if name not in schemes:
            raise RequestError(
                "schemas", f"there is no annotation scheme {name!r}", f"the schemes are: {', '.join(schemes) or 'none'}"
            )
        if name not in can:
            raise RequestError(
                "schemas", f"{info.name} cannot train scheme {name!r} ({schemes[name].annotation_type})",
                f"it can train: {', '.join(can) or 'none of this config'}",
            )
    chosen = list(dict.fromkeys(wanted)) or [s for s in config.training["writeback"]["schemas"] if s in can] or can
    if not chosen:
        raise UserError(f"{info.name} can train none of the annotation schemes of {config.path.name}")
    return tuple(chosen)


def _params(info: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    from ..schema.params import check_params

    findings = check_params(info.params_schema, params)
    if findings:
        raise RequestError("params", "; ".join(f"{f.path}: {f.message}" for f in findings), findings[0].hint)
    return dict(params)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        return str(os.getuid())


# --- reading -------------------------------------------------------------------------------------


def open_store(task_dir: Path) -> Store | None:
    """The project's ledger, or None when nothing was ever run."""
    where = Places(task_dir)
    return Store(where.store) if where.store.exists() else None


def find(store: Store | None, name: str) -> Run:
    """A run by its id, the beginning of one, or ``last``. Raises UserError."""
    runs = store.runs() if store else []
    exact = [run for run in runs if run.run_id == name]
    near = exact or (runs[:1] if name == "last" else [run for run in runs if name and run.run_id.startswith(name)])
    if len(near) == 1:
        return near[0]
    if near:
        raise UserError(f"{name!r} is the beginning of {len(near)} runs", ", ".join(run.run_id for run in near[:5]))
    newest = f"the newest is {runs[0].run_id}" if runs else "there are no runs in this project yet"
    raise UserError(f"there is no run {name!r}", newest)


# --- the supervisor --------------------------------------------------------------------------------


def supervisor_runs(where: Places) -> bool:
    """True when some process holds the project's supervisor lock."""
    try:
        descriptor = os.open(where.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def ensure_supervisor(where: Places) -> None:
    """Starts the project's supervisor when none runs, and waits until one holds the lock.

    Raises UserError with the end of its log when it does not come up.
    """
    if supervisor_runs(where):
        return
    where.prepare()
    log = os.open(where.supervisor_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "potato_training.runtime.supervisor", str(where.task_dir)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=where.root,
        )
    finally:
        os.close(log)
    give_up = time.monotonic() + bounds().supervisor_start_s
    while not supervisor_runs(where):
        # 0 before we saw the lock: it found nothing to do, or another one was quicker
        if child.poll() == 0:
            return
        if child.poll() is not None or time.monotonic() > give_up:
            with suppress(OSError):
                child.kill()
            raise UserError(
                "the project's supervisor did not start", f"{where.supervisor_log} says why: {_last_line(where)}"
            )
        time.sleep(0.02)


def _last_line(where: Places) -> str:
    lines = where.supervisor_log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else "it is empty"
