"""Putting a run into the queue, which is all that a front door does to start one.

The supervisor of the project does the rest; see ``summon``.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..schema.errors import UserError
from . import earlier, launchers, request
from .places import Places, new_run_id
from .store import Run, Store

if TYPE_CHECKING:
    from ..schema.config import Config


def submit(
    config: Config, *, trainer: str | None = None, schemas: Sequence[str] = (), backend: str | None = None,
    params: Mapping[str, Any] | None = None, trigger: str = "cli", facts: Mapping[str, Any] | None = None,
    started_by: str = "",
) -> Run:
    """Checks a request against the config and puts it into the queue.

    Defaults: trainer ``sklearn-text``; the schemas of writeback that the trainer can train, else all
    that it can; backend ``model_training.backend``. ``facts`` join the record; ``started_by`` is who
    asked, else the account that this process runs under. Raises RequestError naming the part that is wrong, UserError
    when training is switched off.
    """
    require_enabled(config)
    info = request.chosen_trainer(trainer)
    place = request.chosen_backend(config, info, backend)
    kind = config.backends[place].type
    _require_launcher(place, kind)
    chosen = request.chosen_schemas(config, info, schemas)
    checked = request.checked_params(info, params or {})
    where = Places(config.task_dir)
    where.prepare()
    store = Store(where.store)
    if info.name == earlier.NAME:
        chosen, checked = earlier.choose(store, where, chosen, schemas, checked)
    return store.insert(
        new_run_id(), trainer=info.name, schemas=chosen, params=checked, backend=place,
        config=os.path.relpath(config.path, config.task_dir), trigger=trigger, started_by=started_by or _user(),
        backend_type=kind, facts=facts,
    )


def require_enabled(config: Config) -> None:
    if not config.training["enabled"]:
        raise UserError(
            f"model training is switched off in {config.path.name}", "set model_training.enabled: true to switch it on"
        )


def _require_launcher(backend: str, kind: str) -> None:
    if kind not in launchers.KINDS:
        raise request.RequestError(
            "backend", f"backend {backend!r} is of type {kind}, where this version cannot start runs yet",
            f"potato compile --backend {backend} shows its scripts; --backend local trains on this machine",
        )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        return str(os.getuid())
