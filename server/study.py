"""The project as the server sees it: its config as it is now, its ledger, its run directories."""

from __future__ import annotations

import threading
from pathlib import Path

from ..runtime import summon
from ..runtime.places import Places
from ..runtime.store import Release, Run, Store
from ..runtime.trainers import Nameable
from ..schema.config import Checked, Config, ConfigError, load
from ..schema.findings import Finding
from .errors import NotFound


class Study:
    """One project. Everything is read when it is asked for; the config only when its file has changed."""

    def __init__(self, path: str | Path):
        """Raises ConfigError for a config with errors: a server does not start on one."""
        self._path = str(path)
        self._lock = threading.Lock()
        self._stamp: object = None
        self._checked: Checked | None = None
        self._good: Config | None = None
        self.places = Places(self.config().task_dir)
        self.places.prepare()
        self.store = Store(self.places.store)
        #: What this server cannot do just now, in words; "" for what it can again.
        self.troubles: dict[str, str] = {}

    def checked(self) -> Checked:
        """The config as the file stands now, with its findings."""
        with self._lock:
            stamp = _stamp(Path(self._path))
            if self._checked is None or stamp != self._stamp:
                self._checked, self._stamp = load(self._path, trainers=Nameable()), stamp
                self._good = self._checked.config or self._good
            return self._checked

    def config(self) -> Config:
        """The config; ConfigError when it has errors now."""
        checked = self.checked()
        if checked.config is None:
            raise ConfigError(checked.errors, self._path)
        return checked.config

    def last_config(self) -> Config:
        """The config, or while it has errors the one before: for what goes on meanwhile."""
        config = self.checked().config or self._good
        assert config is not None, "it was well when this was made"
        return config

    def problems(self) -> tuple[Finding, ...]:
        """What keeps the config from being used now; empty when it is well."""
        return self.checked().errors

    def run(self, run_id: str) -> Run:
        """A run by its whole id. Raises NotFound."""
        run = self.store.get(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id!r}")
        return run

    def held(self) -> list[Release]:
        """What runs that are over still hold on a far side. A live run holds things too, as it should."""
        runs = [(release, self.store.get(release.run_id)) for release in self.store.releases()]
        return [release for release, run in runs if run is None or run.over]

    def run_dir(self, run: Run) -> Path:
        return self.places.run_dir(run.run_id)

    def after_fork(self) -> None:
        """In a forked child: nothing is shared with the process before."""
        self._lock = threading.Lock()

    def summon(self) -> None:
        """Makes sure that a supervisor is at it. Raises UserError when none comes up."""
        summon.ensure_supervisor(self.places)


def _stamp(path: Path) -> object:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino
