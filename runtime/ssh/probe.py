"""What a host says of itself: an interpreter that will do, room on its disk, a GPU. Pure reading of one answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..launchers import LaunchError
from . import gpus
from .talk import Result

#: The worker's oldest Python.
OLDEST = (3, 8)
_SKEW_S = 60


@dataclass(frozen=True)
class Probe:
    """A host that can take the run. ``missing`` are modules that nothing there brings yet."""

    host: str                   # its own name for itself
    python: str                 # "3.11.2 /usr/bin/python3"
    root: str                   # remote_dir, whole
    has_code: bool
    has_job: bool
    needs_venv: bool
    choice: gpus.Choice
    missing: tuple[str, ...]
    free_mb: int | None


def read_probe(said: Result, facts: Mapping[str, Any]) -> Probe:
    """What the answer means for a run with these facts of its place. Raises LaunchError with the reason."""
    place = str(facts["host"])
    if said.all("error"):
        raise LaunchError(said.one("error"), "mend it on the host, or the key of the config that names it")
    python = interpreter(said, place, str(facts["python"]))
    try:
        choice = gpus.choose(said, place, facts)
    except gpus.NoGpu as error:
        raise LaunchError(str(error), error.hint) from None
    free = said.one("free_kb")
    return Probe(
        host=said.one("host"), python=python, root=said.one("root"), has_code=bool(said.all("code")),
        has_job=bool(said.all("job")), needs_venv=said.one("venv") == "missing", choice=choice,
        missing=missing(said), free_mb=int(free) // 1024 if free.isdigit() else None,
    )


def interpreter(said: Result, place: str, wanted: str) -> str:
    """Version and path of the configured interpreter. Raises LaunchError when it is missing or too old."""
    found = said.one("python")
    others = ", ".join(f"{path} ({version})" for version, path in _others(said))
    hint = "point `python` at an interpreter that exists there"
    hint += f"; found there: {others}" if others else "; no Python was found there"
    if not found:
        raise LaunchError(f"{wanted} was not found on {place}", hint)
    version = found.split()[0]
    if _numbers(version) < OLDEST:
        hint = "point `python` at a newer one" + (f"; found there: {others}" if others else "")
        raise LaunchError(f"{wanted} on {place} is Python {version}; 3.8 or newer is needed", hint)
    return found


def clock_note(said: Result, place: str, now: float) -> str:
    """A word about a clock that is far from ours, "" for one that is not. Nothing relies on it but people who compare
    times; ``now``: when the answer was there."""
    told = said.one("time")
    ahead = round(int(told) - now) if re.fullmatch(r"\d{1,12}", told) else 0
    if abs(ahead) <= _SKEW_S:
        return ""
    return f"note: the clock of {place} is {abs(ahead)} s {'ahead of' if ahead > 0 else 'behind'} this machine's"


def _others(said: Result) -> list[tuple[str, str]]:
    """(version, path) of interpreters that would do, each path once."""
    pairs = dict.fromkeys(tuple(line.split(" ", 1)) for line in said.all("other") if " " in line)
    return [(version, path) for version, path in pairs if _numbers(version) >= OLDEST]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def missing(said: Result) -> tuple[str, ...]:
    """The modules that were looked for and are not there."""
    pairs = (line.rpartition(" ") for line in said.all("module"))
    return tuple(name for name, _, state in pairs if state == "missing")
