"""Finding runs in a project's ledger. Light: what only asks imports nothing else of this room."""

from __future__ import annotations

from pathlib import Path

from ..schema.errors import UserError
from .places import Places
from .store import Run, Store


def open_store(task_dir: Path) -> Store | None:
    """The project's ledger, or None when nothing was ever run."""
    where = Places(task_dir)
    where.check()
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
