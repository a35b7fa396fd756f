"""Runs and backends as plain values: what the API answers and the page shows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from ..runtime import launchers
from ..runtime.store import Run
from ..schema.config import Backend, Config
from ..worker.protocol import CANCELLING, EVALUATING, QUEUED, RUNNING


def iso(moment: float | None) -> str | None:
    """Unix seconds as an ISO time in UTC."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def summary(run: Run, queue: Sequence[Run] = (), now: float | None = None) -> dict[str, Any]:
    """A run in short. ``queue`` are the queued runs in order: its ``position`` there counts from 1."""
    return {
        "run_id": run.run_id, "status": run.state, "trainer": run.trainer, "schemas": list(run.schemas),
        "backend": run.backend, "ran_on": ran_on(run), "held_out": held_out(run), "created": iso(run.created),
        "started": iso(run.started), "ended": iso(run.ended), "took_s": took(run, now), "step": run.step,
        "progress": progress(run), "reason": run.reason, "hint": run.hint, "wish": run.wish,
        "cancel_until": iso(run.facts.get("cancel_until")) if run.state == CANCELLING else None,
        "trigger": run.trigger, "started_by": run.started_by,
        "position": next((n for n, other in enumerate(queue, 1) if other.run_id == run.run_id), None),
    }


def record(run: Run, queue: Sequence[Run] = ()) -> dict[str, Any]:
    """Everything in the ledger of a run, and its short form."""
    return {**summary(run, queue), "params": dict(run.params), "config": run.config, "attempt": run.attempt,
            "settled": run.settled, "facts": dict(run.facts)}


def queue_of(open_runs: Sequence[Run]) -> list[Run]:
    """The runs that wait for their turn, in order."""
    return [run for run in open_runs if run.state == QUEUED]


def active_of(open_runs: Sequence[Run]) -> list[Run]:
    """The runs at work: what is neither in the queue nor over."""
    return [run for run in open_runs if run.state != QUEUED and not run.over]


def ran_on(run: Run) -> str:
    host = _mapping(run.facts.get("machine")).get("host")
    return f"{run.backend} ({host})" if host else run.backend


def took(run: Run, now: float | None = None) -> float | None:
    return None if run.started is None else round((run.ended or now or time.time()) - run.started, 1)


def progress(run: Run) -> dict[str, Any] | None:
    """``{"phase", "current", "total", "eta_s"}`` while there is something to count."""
    told = run.facts.get("progress")
    return dict(told) if run.state in (RUNNING, EVALUATING) and isinstance(told, Mapping) else None


def metrics(run: Run) -> Mapping[str, Any]:
    """``{schema: {split: metrics}}``; empty without a result."""
    return _mapping(_mapping(run.facts.get("result")).get("metrics"))


def held_out(run: Run) -> dict[str, Any]:
    """``{schema: {"split", "n", "macro_f1", "accuracy"}}``, of the test split, else val, where there is a score."""
    found = {}
    for schema, splits in metrics(run).items():
        for split in ("test", "val"):
            m = _mapping(_mapping(splits).get(split))
            if isinstance(m.get("macro_f1"), (int, float)):
                found[schema] = {"split": split, **{name: m.get(name) for name in ("n", "macro_f1", "accuracy")}}
                break
    return found


def place(backend: Backend) -> str:
    """A backend in the menu's words: ``gpu-server (ssh to gpu.example.org)``."""
    host = backend.keys.get("host")
    words = {"local": "this machine", "ssh": f"ssh to {host}", "slurm": f"slurm via {host}", "agent": "agent"}
    return f"{backend.name} ({words[backend.type]})"


def backends(config: Config) -> list[dict[str, Any]]:
    """The places to run, the default first."""
    default = config.training["backend"]
    found = [
        {"name": b.name, "type": b.type, "label": place(b), "host": b.keys.get("host"), "default": b.name == default,
         "can_start": b.type in launchers.KINDS}
        for b in config.backends.values()
    ]
    return sorted(found, key=lambda b: not b["default"])


def schemas(config: Config) -> list[dict[str, Any]]:
    enabled = config.training["writeback"]["schemas"]
    return [
        {"name": s.name, "annotation_type": s.annotation_type, "kind": s.kind, "labels": list(s.labels),
         "writeback": s.name in enabled}
        for s in config.schemes
    ]


def trainers() -> list[dict[str, Any]]:
    """Every trainer that can be named; one that cannot be imported says why in ``error``."""
    from ..runtime.checks import installed
    from ..runtime.trainers import Trainers
    from ..schema.errors import UserError

    known = Trainers()
    found: list[dict[str, Any]] = []
    for name in known:
        try:
            info = known[name]
        except (KeyError, UserError) as error:
            found.append({"name": name, "error": str(error)})
            continue
        found.append({
            "name": info.name, "title": info.title, "description": info.description, "kinds": list(info.kinds),
            "backends": None if info.backends is None else list(info.backends), "packages": list(info.packages),
            "missing_here": [package for package in info.packages if not installed(package)],
            "install_hint": info.install_hint, "params_schema": info.params_schema,
        })
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
