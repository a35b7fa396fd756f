"""A backend of the config, fully resolved: what all runs on it share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..schema.config import Backend
from .quoting import normal, sourced_lines_apart, sources
from .sbatch import configured_flags, fixed_flags


class Place(NamedTuple):
    """Where a run executes. Paths are the training machine's; ``~`` in them is its home.

    ``gpus`` is ``auto``, ``none`` or the numbers to use, joined by commas; empty where the scheduler
    chooses. ``venv`` is the directory of the interpreter made for ``packages``, or empty.
    """

    name: str
    type: str
    key: str                            # where its entry stands in the config
    host: str = ""
    remote_dir: str = ""
    python: str = ""                    # the config's own, on the machine that we log in to
    agent_python: str = ""              # runs the agent there
    worker_python: str = ""             # runs the worker
    worker_python_key: str = "python"   # the config key that named it
    env: tuple[tuple[str, str], ...] = ()
    env_file: str = ""
    num_threads: int | None = None
    prelude: tuple[str, ...] = ()
    here_end: str = ""                  # a word that is no line of the prelude
    follow_nothing: bool = False        # the prelude reads scripts in where no line of its own can say so
    fixed_flags: tuple[str, ...] = ()   # of sbatch: those of every job
    flag_keys: tuple[str, ...] = ()     # the config keys behind ``flags``
    flags: tuple[str, ...] = ()
    sbatch_args: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    venv: str = ""
    gpus: str = ""
    gpu_env: tuple[tuple[str, str], ...] = ()
    artifact_limit_bytes: int = 0       # larger files stay; -1 leaves all of them
    keep_remote: bool = False

    @property
    def environment(self) -> bool:
        """Whether the config says anything about the worker's environment."""
        return bool(self.env or self.env_file or self.num_threads)


def _gpus(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(str(v).strip() for v in value)
    return str(value).replace(" ", "")


def _venv(remote_dir: str, python: str, packages: Sequence[str]) -> str:
    """One venv per interpreter and set of packages: the same ones in another order share it."""
    digest = hashlib.sha256("\n".join([python, *sorted(packages)]).encode()).hexdigest()
    return f"{remote_dir}/venvs/{digest[:32]}"


def _gpu_env(gpus: str, min_free_gpu_mb: int, env: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What says to the worker which cards it may use. ``auto`` is settled by the agent, at the last moment."""
    order = () if "CUDA_DEVICE_ORDER" in env else (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),)  # nvidia-smi's numbers
    if "CUDA_VISIBLE_DEVICES" in env:
        return order
    if gpus == "none":
        return (("CUDA_VISIBLE_DEVICES", ""),)
    if gpus == "auto":
        return (*order, ("POTATO_TRAINING_GPUS", "auto"), ("POTATO_TRAINING_MIN_FREE_GPU_MB", str(min_free_gpu_mb)))
    return (*order, ("CUDA_VISIBLE_DEVICES", gpus))


def _word_apart(word: str, lines: Sequence[str]) -> str:
    while word in lines:
        word += "_"
    return word


def _remote(keys: Mapping[str, Any]) -> dict[str, Any]:
    prelude = tuple(keys.get("prelude") or ())
    return {
        "host": keys["host"],
        "remote_dir": normal(keys["remote_dir"]),
        "python": keys["python"],
        "agent_python": keys["python"],
        "worker_python": keys["python"],
        "env": tuple((name, str(value)) for name, value in (keys.get("env") or {}).items()),
        "env_file": normal(keys["env_file"]) if keys.get("env_file") else "",
        "num_threads": keys.get("num_threads"),
        "prelude": prelude,
        "here_end": _word_apart("START", prelude),
        "follow_nothing": sources(prelude) and not sourced_lines_apart(prelude),
        "artifact_limit_bytes": int(keys["max_artifact_mb"] * 2**20) if keys["fetch_artifacts"] else -1,
        "keep_remote": keys["keep_remote"],
    }


def _slurm(keys: Mapping[str, Any]) -> dict[str, Any]:
    more = _remote(keys)
    if keys.get("job_python"):
        more.update(worker_python=keys["job_python"], worker_python_key="job_python")
    flag_keys, flags = configured_flags(keys)
    return {**more, "fixed_flags": fixed_flags(keys), "flag_keys": flag_keys, "flags": flags,
            "sbatch_args": tuple(keys.get("sbatch_args") or ())}


def _ssh(keys: Mapping[str, Any]) -> dict[str, Any]:
    more = _remote(keys)
    packages = tuple(keys.get("packages") or ())
    if packages:
        venv = _venv(more["remote_dir"], more["python"], packages)
        interpreter = f"{venv}/bin/python"
        more.update(packages=packages, venv=venv, worker_python=interpreter, agent_python=interpreter)
    gpus = _gpus(keys["gpus"])
    return {**more, "gpus": gpus, "gpu_env": _gpu_env(gpus, keys["min_free_gpu_mb"], keys.get("env") or {})}


_BY_TYPE = {"slurm": _slurm, "ssh": _ssh}
_last: tuple[Backend, Place] | None = None


def place_of(backend: Backend) -> Place:
    """``backend`` resolved. The last one is remembered: runs come in rows on the same backend."""
    global _last
    last = _last  # several threads compile; each looks at one pair
    if last is None or last[0] is not backend:
        resolve = _BY_TYPE.get(backend.type)
        more = resolve(backend.keys) if resolve else {}
        place = Place(backend.name, backend.type, f"model_training.backends.{backend.name}", **more)
        _last = last = (backend, place)
    return last[1]


def place_of_agent(name: str, keys: Mapping[str, Any], python: str) -> Place:
    """The cluster of an agent that submits its own workers: ``keys`` are those of its --slurm-config, and
    ``python`` is its interpreter, which jobs run where ``job_python`` names no other."""
    own = {"host": "", "remote_dir": "~", "python": python, "max_artifact_mb": 0, "fetch_artifacts": False,
           "keep_remote": False, **keys}
    return Place(name, "slurm", "slurm-config", **_slurm(own))
