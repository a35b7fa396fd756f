"""The places where Potato is changed, and what stands there instead.

Potato looks each of these names up at the moment when it uses them, in this order: when it has read the config,
``register`` and then the table of keys; when the items are loaded, ``rehydrate_predictions``; when a server is
made, ``training_bp`` and ``init_training_manager``; then it registers the blueprint. Only the last three
belong to a server that will serve. Validating and previewing come no further than the table.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flask

from ..schema.errors import UserError
from ..server.rendering import PREFIX
from . import names
from .prelabels import Prelabels

if TYPE_CHECKING:
    from ..schema.config import Config
    from .inside import Inside

_log = logging.getLogger("potato_training.plugin")
#: The path of its config, which Potato keeps among its values.
_FILE = "__config_file__"
_NOT_STARTED = "Potato is not started: correct this, or take `training-backends` out of `plugins:`"


def install(api: Any) -> None:
    """Puts everything in its place, or leaves Potato as it is and says why in one line."""
    try:
        names.check()
        keys = _keys(names.known_keys()["model_training"])
        api.add_assets("static", scripts=["prelabels.js"], styles=["prelabels.css"])
        bridge = Bridge()
        blueprint = flask.Blueprint("training", __name__)
        blueprint.record_once(bridge.mount)
        bridge.listen()
    except Exception as error:  # anything else would keep Potato from reading its config
        _log.warning("training-backends: %s. Potato's own training stays in place.", error)
        return
    names.known_keys()["model_training"] = keys
    names.replace(init_manager=bridge.init_manager, blueprint=blueprint, rehydrate=bridge.rehydrate)


def _keys(potatoes: Mapping[str, Any]) -> dict[str, Any]:
    """Potato's keys of model_training and ours. What stands below ours is checked by our own rules."""
    from ..schema.check import config_schema

    ours = config_schema()["$defs"]["model_training"]["properties"]
    keys = {**potatoes, **{name: None for name in ours if name not in potatoes}}
    for name, below in keys.items():
        known = ours.get(name, {}).get("properties")
        if known and isinstance(below, (set, frozenset)):
            keys[name] = set(below) | set(known)
    return keys


class Bridge:
    """One a process: Potato serves one project in each."""

    def __init__(self) -> None:
        self._prelabels: dict[Path, Prelabels] = {}
        self._inside: Inside | None = None

    def rehydrate(self, config: Mapping[str, Any], items: Any) -> int:
        """In the place of ``rehydrate_predictions``: prelabels of earlier runs, as Potato starts. How many."""
        from ..schema.config import load

        found = load(_path(config)).config
        if found is None:  # said by init_manager, where it also has consequences
            return 0
        return self._prelabels_of(found).follow(items, found.training["writeback"]["schemas"])

    def init_manager(self, config: Mapping[str, Any]) -> Any:
        """In the place of ``init_training_manager``. A config with errors ends the server before it serves."""
        from .inside import Inside

        try:
            self._inside = Inside(_path(config), config, self._prelabels_of)
        except UserError as error:
            print(error.message, file=sys.stderr)
            if error.hint:
                print(f"  {error.hint}", file=sys.stderr)
            print(_NOT_STARTED, file=sys.stderr)
            raise SystemExit(1) from None
        names.set_manager(self._inside.manager)
        return self._inside.manager

    def mount(self, state: Any) -> None:
        """Called when Potato registers the blueprint that stands in the place of ``training_bp``."""
        if self._inside is not None:
            self._inside.mount(state.app)
            _log.info("Training page: %s", PREFIX)

    def listen(self) -> None:
        """Has the first request of this process say why there is no page. Nothing of ours is called before where
        training is switched off, and the log is not set up yet when Potato reads its config."""
        with contextlib.suppress(RuntimeError):  # an old Flask without signals
            flask.request_started.connect(self._first_request)

    def _first_request(self, app: Any, **more: Any) -> None:
        flask.request_started.disconnect(self._first_request)
        if self._inside is None:
            _log.info(
                "training-backends is among the plugins, but model_training.enabled is not true: there is no %s", PREFIX
            )

    def _prelabels_of(self, config: Config) -> Prelabels:
        from ..runtime.places import Places

        path = Places(config.task_dir).prelabels
        if path not in self._prelabels:
            self._prelabels[path] = Prelabels(path, config.training["writeback"]["field"])
        return self._prelabels[path]


def _path(config: Mapping[str, Any]) -> str:
    path = config.get(_FILE)
    if not isinstance(path, str) or not path:
        raise UserError("Potato does not say where its config file is", "start it with the path of one")
    return path
