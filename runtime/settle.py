"""What follows a run's end: prelabels, pruning, word to whoever wants it. Safe to do again after a kill."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..schema.errors import UserError
from ..worker.protocol import SUCCEEDED
from . import notify, places, runlog
from .places import Places
from .store import Run, Store

if TYPE_CHECKING:
    from ..schema.config import Config


def settle(store: Store, where: Places, run_id: str) -> None:
    """Publishes a good run's predictions, prunes, owes the notification, and marks the run as settled.

    A run that ended otherwise changes nothing of what is published.
    """
    run = store.get(run_id)
    if run is None or not run.over or run.settled:
        return
    config = _config(where, run, store)
    if config is not None:
        if run.state == SUCCEEDED:
            _publish(store, where, run, config)
        prune(store, where, config.training["retain_runs"], keep=run_id)
        notify.owe(store, where, store.get(run_id) or run, config)
    store.settle(run_id)


def _config(where: Places, run: Run, store: Store) -> Config | None:
    from ..schema.config import load_or_raise
    from .trainers import Nameable

    try:
        return load_or_raise(where.task_dir / run.config, trainers=Nameable())
    except UserError as error:
        if run.state == SUCCEEDED:
            text = f"the predictions were not published: {run.config} has errors now"
            store.record(run.run_id, warnings=[text])
            runlog.log(where.run_dir(run.run_id), f"warning: {text}", error.message)
        return None


def _publish(store: Store, where: Places, run: Run, config: Config) -> None:
    from ..project.writeback import publish

    run_dir = where.run_dir(run.run_id)
    try:
        report = publish(
            config, run_id=run.run_id, predictions=run_dir / places.PREDICTIONS, destination=where.prelabels
        )
    except (UserError, OSError) as error:
        text = f"the predictions were not published: {error}"
        store.record(run.run_id, warnings=[text])
        runlog.log(run_dir, f"warning: {text}")
        return
    store.note(run.run_id, writeback=dict(report))
    runlog.log(run_dir, f"published {report.get('published', 0)} prelabels to training/{where.prelabels.name}")
    unmeasured = [
        f"{name}: {n} prelabels were published without a held-out score: too few labelled items are held out to tell "
        "how good they are; annotate more, then train again"
        for name, n in report["schemas"].items() if n and not _has_score(run, name)
    ]
    if unmeasured:
        store.record(run.run_id, warnings=unmeasured)
        runlog.log(run_dir, *(f"warning: {text}" for text in unmeasured))


def _has_score(run: Run, schema: str) -> bool:
    """Whether the run's model was measured on items that it did not learn from."""
    found: Any = run.facts.get("result")
    for key in ("metrics", schema):
        found = found.get(key) if isinstance(found, Mapping) else None
    splits = found.values() if isinstance(found, Mapping) else ()
    return any(isinstance(split, Mapping) and isinstance(split.get("accuracy"), (int, float)) for split in splits)


def prune(store: Store, where: Places, retain: int, keep: str) -> None:
    """Removes the oldest finished runs beyond ``retain``, folder and row together.

    Never the run just ended, a run that is not settled or still holds something elsewhere, a run whose
    predictions are published, or the last good one.
    """
    runs = store.runs()
    finished = [run for run in runs if run.over]
    good = next((run.run_id for run in finished if run.state == SUCCEEDED), None)
    held = {release.run_id for release in store.releases()} | {keep, good, *_published(where)}
    for run in finished[retain:]:
        if run.run_id in held or not run.settled:
            continue
        folder = where.run_dir(run.run_id)
        if folder.exists():
            # first out of sight, so that a kill in the middle leaves no half of a run to be read
            doomed = folder.with_name(f".{folder.name}.pruned")
            shutil.rmtree(doomed, ignore_errors=True)
            folder.rename(doomed)
            shutil.rmtree(doomed)
        store.delete(run.run_id)


def _published(where: Places) -> set[str]:
    from ..project.writeback import published_runs

    return published_runs(where.prelabels)
