"""Automatic runs: after enough new annotations, and always a sentence that says why none was started.

What was counted at the last run is in the ledger, so a restart starts nothing. One process of a project
watches at a time, and leaves what it says where the others find it; whoever serves the project may ask it to
``look`` as often as it likes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..schema.errors import UserError
from ..worker.jobdir import write_private
from . import places
from .places import Places
from .request import chosen_schemas, chosen_trainer
from .store import Run, Store
from .submit import submit
from .summon import ensure_supervisor

if TYPE_CHECKING:
    from ..schema.config import Config

#: Between two looks at the annotators' files, and how many times as long as the last count took at least.
_LOOK_S = 3.0
_SHARE = 20
_TOLD = "auto.json"
#: After a start that was refused.
_AGAIN_S = 60.0


class AutoRetrain:
    """Watches one project. ``load`` gives the config as it is now, or raises UserError."""

    def __init__(self, store: Store, where: Places, load: Callable[[], Config]):
        self._store, self._places, self._load = store, where, load
        self._lock: int | None = None
        self._next_look = 0.0
        self._stamp: Any = None
        self._counted: dict[str, int] = {}
        self._told: dict[str, Any] = {"enabled": False, "words": "not looked yet"}

    def told(self) -> dict[str, Any]:
        """``{"enabled", "words", "new_annotations"?, "update_frequency"?}`` as of the last look."""
        return dict(self._told)

    def look(self) -> bool:
        """Starts a run when it is time; False when it is too soon to look again.

        Never raises UserError: it becomes the words.
        """
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _LOOK_S
        before = self._told
        try:
            self._told = self._look()
        except UserError as error:
            self._next_look = time.monotonic() + _LOOK_S * 3
            self._told = {"enabled": True, "words": f"none started: {error.message.splitlines()[0]}"}
        if self._lock is not None and self._told != before:
            with contextlib.suppress(OSError):
                write_private(str(self._places.root / _TOLD), json.dumps(self._told) + "\n")
        return True

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _look(self) -> dict[str, Any]:
        config = self._load()
        rules = config.training.get("auto_retrain") or {}
        if not rules.get("enabled"):
            self.close()
            return {"enabled": False, "words": "off (model_training.auto_retrain.enabled)"}
        told: dict[str, Any] = {"enabled": True, "update_frequency": rules["update_frequency"]}
        if not config.training["enabled"]:
            return told | {"words": "none: model_training.enabled is false"}
        if not self._take_lock():
            return told | {"words": "another server of this project watches"} | self._of_the_other()
        info = chosen_trainer(rules["trainer"])
        schemas = chosen_schemas(config, info, rules["schemas"])
        now = self._count(config)
        newest = next(iter(self._store.runs(1)), None)
        then = last_counts(self._store, self._places, schemas)
        fresh = sum(max(0, now.get(name, 0) - then.get(name, 0)) for name in schemas)
        told |= {"new_annotations": fresh, "trainer": info.name, "schemas": list(schemas)}
        some = f"{fresh} of {rules['update_frequency']} new annotations since the last run"
        if fresh < rules["update_frequency"]:
            return told | {"words": f"waiting: {some}"}
        if newest is not None and not (newest.over and newest.settled):
            return told | {"words": f"waiting: {some}, and run {newest.run_id} has not ended"}
        wait = 0.0 if newest is None else newest.created + rules["min_interval_s"] - time.time()
        if 0 < wait <= rules["min_interval_s"]:
            return told | {"words": f"waiting: {some}, and {_span(wait)} of min_interval_s are left",
                           "seconds_left": round(wait)}
        run = self._start(config, rules, schemas, now)
        return told | {"words": f"started run {run.run_id} after {fresh} new annotations", "new_annotations": 0}

    def _start(self, config: Config, rules: Mapping[str, Any], schemas: tuple[str, ...], now: dict[str, int]) -> Run:
        try:
            run = submit(
                config, trainer=rules["trainer"], schemas=schemas, backend=rules["backend"],
                params=rules["params"] or {}, trigger="auto", facts={"annotations": now},
            )
        except UserError:
            self._next_look = time.monotonic() + _AGAIN_S
            raise
        ensure_supervisor(self._places)
        return run

    def _of_the_other(self) -> dict[str, Any]:
        """What the process that watches has said last."""
        try:
            told = json.loads((self._places.root / _TOLD).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) and isinstance(told.get("words"), str) else {}

    def _take_lock(self) -> bool:
        if self._lock is None:
            descriptor = os.open(self._places.root / "auto.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            self._lock = descriptor
        return True

    def _count(self, config: Config) -> dict[str, int]:
        """Annotations by schema. Read again only when a file has changed, and never for more than a small share
        of the time."""
        from ..project.overview import summary

        stamp = (config.sha256, _stamp(config))
        if stamp != self._stamp:
            began = time.monotonic()
            told = summary(config)
            self._counted = {name: one.get("annotations", 0) for name, one in told["schemes"].items()}
            self._stamp = stamp
            took = time.monotonic() - began
            self._next_look = max(self._next_look, time.monotonic() + took * _SHARE)
        return self._counted


def last_counts(store: Store, where: Places, schemas: tuple[str, ...]) -> dict[str, int]:
    """Annotations of each schema when a run last learnt from it; a schema that none has is not there."""
    found: dict[str, int] = {}
    for run in store.runs(200):
        wanted = [name for name in schemas if name in run.schemas and name not in found]
        if not wanted:
            continue
        counts = run.facts.get("annotations")
        if not isinstance(counts, dict):
            try:
                manifest = json.loads((where.run_dir(run.run_id) / places.MANIFEST).read_text("utf-8"))
                per_schema = manifest["aggregation"]["per_schema"]
                counts = {name: one["annotations"] for name, one in per_schema.items()}
            except (OSError, ValueError, KeyError, TypeError):
                continue
        found |= {name: counts[name] for name in wanted if name in counts}
        if len(found) == len(schemas):
            break
    return found


def _stamp(config: Config) -> tuple[Any, ...]:
    """What changes when an annotator saves something."""
    found = []
    try:
        folders = [Path(entry.path) for entry in os.scandir(config.output_dir) if entry.is_dir()]
    except OSError:
        folders = []
    for path in (*(folder / "user_state.json" for folder in sorted(folders)), *config.data_files):
        try:
            about = path.stat()
        except OSError:
            continue
        found.append((str(path), about.st_mtime_ns, about.st_size, about.st_ino))
    return tuple(found)


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
