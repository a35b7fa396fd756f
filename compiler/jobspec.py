"""The job: one run on one backend, fully resolved, before any of it is shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..schema.config import Config
from .place import Place, place_of
from .request import RunRequest


@dataclass(frozen=True, eq=False)  # comparing them is nobody's wish, and costs each start a millisecond
class JobSpec:
    """What the templates read, together with its ``place``. ``job_dir`` is on the training machine."""

    version: str
    config_sha256: str
    run_id: str
    attempt: int
    trainer: str
    schemas: tuple[str, ...]
    params: Mapping[str, Any]
    place: Place
    job_dir: str


def job_spec(config: Config, request: RunRequest, *, version: str) -> JobSpec:
    """The resolved job of ``request``. KeyError when the config has no backend of that name."""
    place = place_of(config.backends[request.backend])
    job_dir = f"{place.remote_dir.rstrip('/')}/jobs/{request.run_id}" if place.remote_dir else ""
    return JobSpec(
        version, config.sha256, request.run_id, request.attempt, request.trainer, tuple(request.schemas),
        request.params, place, job_dir,
    )
