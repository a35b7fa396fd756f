"""What a login node says of itself: an interpreter for the agent, and the scheduler's commands. Pure reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..launchers import LaunchError
from ..ssh.gpus import Choice
from ..ssh.probe import Probe, interpreter
from ..ssh.talk import Result

#: Without these nothing can be submitted, watched or cancelled; scontrol may be missing.
PROGRAMS = ("sbatch", "squeue", "scancel")
PATH_HINT = "not a login node, or a PATH set by login shells only: set PATH under `env`"


def read_login(said: Result, facts: Mapping[str, Any]) -> Probe:
    """A login node that can take the run. Raises LaunchError with the reason."""
    host = str(facts["host"])
    python = interpreter(said, host, str(facts["python"]))
    for program in PROGRAMS:
        if not has(said, program):
            raise LaunchError(lacking(host, program), PATH_HINT)
    free = said.one("free_kb")
    return Probe(
        host=said.one("host"), python=python, root=said.one("root"), has_code=bool(said.all("code")),
        has_job=bool(said.all("job")), needs_venv=False, choice=Choice("the scheduler's choice"), missing=(),
        free_mb=int(free) // 1024 if free.isdigit() else None,
    )


def has(said: Result, program: str) -> bool:
    return said.one(program, "absent") != "absent"


def lacking(host: str, program: str) -> str:
    return f"{host} has no {program} on PATH, so it cannot submit jobs"
