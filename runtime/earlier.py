"""The earlier run whose predictions a run starts from, for the trainer that needs one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..schema.errors import UserError
from ..worker.protocol import SUCCEEDED
from . import places
from .lookup import find
from .places import Places
from .request import RequestError

if TYPE_CHECKING:
    from .store import Run, Store

#: The trainer that trains nothing of its own.
NAME = "decision-calibrate"


def choose(
    store: Store, where: Places, schemas: Sequence[str], named: Sequence[str], params: Mapping[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(schemas, params) with the run named, so that the record says which it was.

    ``named`` are the schemas that a person asked for; without any, those of the earlier run are taken.
    """
    asked = params.get("run")
    if asked is not None:
        run = _named(store, str(asked))
        _require_predictions(run, where)
    else:
        fits = (r for r in store.runs() if _usable(r, where) and set(r.schemas) & set(named or schemas))
        last = next((r for r in fits if r.trainer != NAME), None)
        if last is None:
            raise UserError("there is no earlier run whose predictions could be calibrated",
                            "train a model first, for example with --trainer sklearn-text")
        run = last
    missing = [name for name in named if name not in run.schemas]
    if missing:
        raise RequestError("schemas", f"run {run.run_id} predicted nothing for {missing[0]!r}",
                           f"it predicted {', '.join(run.schemas)}")
    chosen = tuple(name for name in schemas if name in run.schemas)
    if not chosen:
        raise RequestError("params", f"run {run.run_id} predicted none of the schemes of this config")
    return chosen, {**params, "run": run.run_id}


def _named(store: Store, name: str) -> Run:
    """As show, logs and cancel take it: an id, the beginning of one, or ``last``."""
    try:
        return find(store, name)
    except UserError as error:
        raise RequestError("params", error.message, error.hint) from None


def _require_predictions(run: Run, where: Places) -> None:
    if run.state != SUCCEEDED:
        raise RequestError("params", f"run {run.run_id} has no predictions to calibrate: it is {run.state}",
                           "name one that succeeded; potato training runs lists them")
    if not _usable(run, where):
        raise RequestError("params", f"run {run.run_id} has no predictions to calibrate: "
                           f"its {places.PREDICTIONS} is gone", "name another; potato training runs lists them")


def _usable(run: Run, where: Places) -> bool:
    return run.state == SUCCEEDED and (where.run_dir(run.run_id) / places.PREDICTIONS).is_file()
