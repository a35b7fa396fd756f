"""A project that a Potato server serves: its page, its live items, its prelabels, and a thread that looks after them.

Runs belong to the project's supervisor, which this server starts on demand like every other front door. Several
server processes of one project are several front doors.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flask

from ..runtime.agent_routes import make_blueprint as agent_blueprint
from ..runtime.intake import Intake
from ..schema.errors import UserError
from ..schema.report import line_of
from ..server.app import make_blueprint
from ..server.auto import Automatic
from ..server.keeper import Keeper
from ..server.study import Study
from . import names
from .door import PotatoDoor
from .items import LiveItems
from .marks import make_blueprint as marks_blueprint
from .prelabels import Prelabels, pause

if TYPE_CHECKING:
    from ..schema.config import Config

_log = logging.getLogger("potato_training.plugin")
#: Between two looks at the ledger, at prelabels and at the number of items.
_LOOK_S = 1.0
#: Between two looks at automatic runs when nothing was saved: time passes as well.
_AUTO_S = 10.0


class Inside:
    """Raises UserError: a config with errors, or one that Potato and this program read in two ways."""

    def __init__(self, path: str, live: Mapping[str, Any], prelabels_of: Callable[[Config], Prelabels]):
        self.study = Study(path)
        config = self.study.config()
        for finding in self.study.checked().warnings:
            _log.warning("%s", line_of(path, finding))
        _same_folder(config, live)
        self.prelabels = prelabels_of(config)
        self.items = LiveItems(config)
        self.auto = Automatic(self.study)
        self.keeper = Keeper(self.study, self.auto, _LOOK_S, auto_s=_AUTO_S, also=self.look)
        self.manager = Manager(self)
        self._process = os.getpid()
        self.keeper.start()
        os.register_at_fork(
            before=self.keeper.hold, after_in_parent=self.keeper.go_on, after_in_child=self._after_fork
        )

    def look(self) -> None:
        """Live items to the disk, prelabels to the live items. Cheap when nothing has changed."""
        items = names.items()
        self.items.follow(items)
        config = self.study.last_config()
        self.prelabels.follow(items, config.training["writeback"]["schemas"], pause)

    def mount(self, app: Any) -> None:
        """Puts the page, the agent routes and the marks into Potato's app."""
        pages = make_blueprint(self.study, PotatoDoor(), self.auto)

        @pages.before_request
        def up_to_date() -> None:
            if flask.request.method == "POST":  # perhaps a run: it is to have the items of this moment
                self.items.follow(names.items())

        app.register_blueprint(pages)
        app.register_blueprint(agent_blueprint(Intake(self.study.store, self.study.places)))
        app.register_blueprint(marks_blueprint(self.prelabels, self.study))

        @app.before_request
        def awake() -> None:
            self.awake()

    def awake(self) -> None:
        """The thread of a process that was forked from the one which read the config starts with its first request."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self.keeper.start()

    def _after_fork(self) -> None:
        self.study.after_fork()
        self.items.after_fork()
        self.auto.close()  # the lock of the process before, which keeps it
        self.keeper.after_fork()


class Manager:
    """What Potato takes for its training manager."""

    def __init__(self, inside: Inside):
        self._inside = inside
        self.enabled = True

    def maybe_auto_retrain(self) -> dict[str, Any]:
        """Called by Potato within every save: leaves a mark for the thread that counts, and is gone."""
        self._inside.keeper.nudge()
        return {"started": False, "reason": "counted beside the save"}

    def status(self) -> dict[str, Any]:
        running = self.is_running()
        return {"state": "running" if running else "idle", "skip_reason": self._inside.auto.told()["words"]}

    def is_running(self) -> bool:
        return bool(self._inside.study.store.open_runs())

    def shutdown(self) -> None:
        """Runs go on without this server."""
        self._inside.keeper.stop()


def _same_folder(config: Config, live: Mapping[str, Any]) -> None:
    """Both must mean the same annotations, or a run would learn from another project's."""
    base = Path(os.path.abspath(str(live.get("task_dir") or ".")))  # noqa: PTH100 Potato stands in its task_dir
    theirs = base / str(live.get("output_annotation_dir") or "annotation_output")
    if os.path.realpath(theirs) != os.path.realpath(config.output_dir):
        raise UserError(
            f"Potato keeps its annotations in {theirs}, and {config.path.name} reads as {config.output_dir}",
            "write task_dir and output_annotation_dir as absolute paths",
        )
