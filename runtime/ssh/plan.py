"""What is written into a run directory before anything happens on the host: the scripts, and how to get there.

A later supervisor needs nothing else, and no config: that may have changed or gone meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...worker.jobdir import write_private
from .connection import local_path

if TYPE_CHECKING:
    from ...compiler import CompiledRun
    from ...schema.config import Backend, Config
    from ..store import Run

PLACE = "place.json"


def write_plan(config: Config, run: Run, run_dir: Path) -> None:
    """Writes the run's scripts, and the facts of its place in place.json."""
    from ..trainers import Trainers

    compiled = compile_for(config, run)
    facts = place_facts(config, config.backends[run.backend], Trainers()[run.trainer], compiled.spec.place.venv)
    write_all(run_dir, compiled.files, facts)


def compile_for(config: Config, run: Run) -> CompiledRun:
    """The scripts of a run."""
    from ... import __version__
    from ...compiler import RunRequest, compile_run

    request = RunRequest(run.run_id, run.backend, run.trainer, run.schemas, run.params, run.attempt)
    return compile_run(config, request, version=__version__)


def write_all(run_dir: Path, files: Mapping[str, str], facts: Mapping[str, Any]) -> None:
    """The scripts, and the facts after them."""
    for name, text in files.items():
        write_private(str(run_dir / name), text)
    write_private(str(run_dir / PLACE), json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def place_facts(config: Config, backend: Backend, trainer: Any, venv: str = "") -> dict[str, Any]:
    """How to reach the host, and what a run wants of it, as plain values."""
    keys = backend.keys
    return {
        **host_facts(config, backend, trainer),
        "venv": venv,
        "gpus": ",".join(map(str, keys["gpus"])) if isinstance(keys["gpus"], list) else str(keys["gpus"]),
        "gpu_is_set": "CUDA_VISIBLE_DEVICES" in (keys.get("env") or {}),
        "min_free_gpu_mb": keys["min_free_gpu_mb"],
        "packages": list(keys.get("packages") or ()),
        "modules": list(trainer.packages),
    }


def host_facts(config: Config, backend: Backend, trainer: Any) -> dict[str, Any]:
    """Those that every host has that is reached by a login."""
    keys = backend.keys
    timeout = float(keys["heartbeat_timeout_s"])
    return {
        "backend": backend.name,
        "host": keys["host"],
        "user": keys.get("user"),
        "port": keys.get("port"),
        "identity_file": local_path(keys.get("identity_file"), config.path.parent),
        # three questions without an answer are noticed in half of what the agent's silence may last
        "alive_s": max(1, min(15, int(timeout / 6))),
        "timeout_s": timeout,
        "python": keys["python"],
        "trainer": trainer.name,
        "fetch_artifacts": keys["fetch_artifacts"],
        "max_artifact_mb": keys["max_artifact_mb"],
        "keep_remote": keys["keep_remote"],
    }


def read_place(run_dir: Path) -> dict[str, Any]:
    """The facts of a run's place. FileNotFoundError before they were written."""
    facts: dict[str, Any] = json.loads((run_dir / PLACE).read_text("utf-8"))
    return facts


def script(run_dir: Path, name: str) -> str:
    """One of the run's scripts as it was rendered."""
    return (run_dir / name).read_text("utf-8")


def wanted_modules(facts: Mapping[str, Any]) -> str:
    return " ".join(facts["modules"])
