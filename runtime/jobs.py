"""The job message: what an agent is told when it claims a run.

It is written to the run directory (job.json) when the run leaves the queue, and answered from there
for as long as the run lives, so every claim of a run gets the same bytes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..worker.jobdir import write_private
from ..worker.protocol import BUNDLE_DIR, PROTOCOL
from . import places
from .bounds import bounds
from .earlier import NAME as EARLIER
from .store import Run

if TYPE_CHECKING:
    from ..compiler import RunRequest
    from ..project.bundle import Bundle
    from ..schema.config import Config

#: Longest silence of an agent with nothing to say. It bounds how soon a cancel reaches the worker.
_HEARTBEAT_S = {"local": 1.0, "ssh": 2.0, "slurm": 2.0, "agent": 5.0}


def job_message(run: Run, config: Config, bundle: Bundle) -> dict[str, Any]:
    """The message of one run."""
    backend = config.backends[run.backend]
    training = config.training
    timeout = backend.keys.get("heartbeat_timeout_s") or bounds().heartbeat_timeout_s
    on_disconnect = backend.keys.get("on_disconnect") or "stop"
    return {
        "protocol": PROTOCOL,
        "run_id": run.run_id,
        "attempt": run.attempt,
        "trainer": run.trainer,
        "spec": worker_spec(run, config, on_disconnect),
        "bundle": {"size": bundle.size, "sha256": bundle.sha256, "etag": f'"{bundle.sha256[:32]}"'},
        "env": _local_env() if backend.type == "local" else {},
        # elsewhere the agent runs under the worker's interpreter
        "python": sys.executable if backend.type == "local" else "",
        "grace_seconds": training["grace_seconds"],
        "heartbeat_s": _HEARTBEAT_S[backend.type],
        "give_up_s": max(timeout, bounds().agent_give_up_s) if backend.type == "agent" else timeout,
        "max_wall_seconds": training["max_wall_seconds"],
        "on_disconnect": on_disconnect,
        "poll_interval_s": backend.keys.get("poll_interval_s"),
        "scheduler": None,
    }


def _local_env() -> dict[str, str]:
    """On this machine the worker sees the same modules as the server; elsewhere PYTHONPATH means nothing."""
    return {"PYTHONPATH": os.environ["PYTHONPATH"]} if os.environ.get("PYTHONPATH") else {}


def worker_spec(run: Run | RunRequest, config: Config, on_disconnect: str) -> dict[str, Any]:
    """The worker's spec.json of a run, or of what was asked for by hand."""
    training = config.training
    local = config.backends[run.backend].type == "local"
    schemes = {scheme.name: scheme for scheme in config.schemes}
    earlier = run.params.get("run") if run.trainer == EARLIER else None
    return {
        **({"earlier": str(places.Places(config.task_dir).run_dir(earlier) / places.PREDICTIONS)} if earlier else {}),
        "v": 1,
        "run_id": run.run_id,
        "attempt": run.attempt,
        "trainer": run.trainer,
        "schemas": [
            {
                "name": name,
                "annotation_type": schemes[name].annotation_type,
                "kind": schemes[name].kind,
                "labels": list(schemes[name].labels),
            }
            for name in run.schemas
        ],
        "bundle_dir": BUNDLE_DIR,
        "workdir": ".",
        "params": _params(run.params, config) if local else dict(run.params),
        "seed": training["split_seed"],
        "include_unlabeled": bool(training["writeback"]["include_unlabeled"]),
        "limits": {
            # device, num_threads and max_ram_mb of model_training are this machine's, never a remote one's
            "max_ram_mb": training["max_ram_mb"] if local else None,
            "num_threads": training["num_threads"] if local else None,
            "device": training["device"] if local else "auto",
        },
        "grace_seconds": training["grace_seconds"],
        "on_disconnect": on_disconnect,
        "orphan": {"stdin": True, "lease_s": None},
    }


def _params(params: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """On this machine a model's directory may be written as the config's other paths: from its directory, or with ~."""
    model = params.get("model")
    if not isinstance(model, str) or Path(model).is_absolute():
        return dict(params)
    path = (config.path.parent / model).resolve()
    if model.startswith("~"):
        path = Path(os.path.expanduser(model))  # noqa: PTH111 - an unknown ~user stays as it is
    elif not model.startswith(("./", "../")) and not path.is_dir():
        return dict(params)  # a name on huggingface.co
    return {**params, "model": str(path)}


def write_job(run_dir: Path, job: Mapping[str, Any]) -> None:
    write_private(str(run_dir / places.JOB), json.dumps(job, indent=1, ensure_ascii=False) + "\n")


def read_job(run_dir: Path) -> dict[str, Any]:
    """The job of a run directory; FileNotFoundError before it was written."""
    job: dict[str, Any] = json.loads((run_dir / places.JOB).read_text("utf-8"))
    return job
