"""What the partitions allow, against what a job asks for. Pure.

``sbatch --test-only`` does not tell: it takes a time above the partition's MaxTime, and the job would wait for
ever (seen on Slurm 22.05).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...schema.slurmtime import seconds

_UNITS = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


class Wish(NamedTuple):
    """As in the config; empty or None is the cluster's own choice."""

    partition: str = ""
    time: str = ""
    cpus_per_task: int | None = None
    mem: str = ""


def limits(lines: Sequence[str], wish: Wish) -> Iterator[tuple[str, str]]:
    """(what is wrong, the remedy), when no partition of those that may take the job allows it. ``lines``: what
    ``scontrol -o show partition`` prints; without any there is nothing to say."""
    known = {words["PartitionName"]: words for words in map(_words, lines) if "PartitionName" in words}
    if wish.partition:
        names = [name for name in wish.partition.split(",") if name in known]  # an unknown one sbatch refuses
    else:
        names = [name for name, words in known.items() if words.get("Default") == "YES"]
    found = [_problems(name, known[name], wish) for name in names]
    if found and all(found):
        yield from found[0]


def _problems(name: str, words: Mapping[str, str], wish: Wish) -> list[tuple[str, str]]:
    problems = []
    state = words.get("State", "UP")
    if state != "UP":
        problems.append((f"partition {name} is {state}: jobs there do not start", "another partition, or wait"))
    wanted, most = seconds(wish.time) if wish.time else None, seconds(words.get("MaxTime", "UNLIMITED"))
    if wanted is not None and most is not None and wanted > most:
        problems.append((f"time {wish.time} is above the MaxTime of partition {name}, {words['MaxTime']}: "
                         "the job would wait for ever", "lower `time`, or another partition"))
    cpus = words.get("MaxCPUsPerNode", "")
    if wish.cpus_per_task and cpus.isdigit() and wish.cpus_per_task > int(cpus):
        problems.append((f"cpus_per_task {wish.cpus_per_task} is above the MaxCPUsPerNode of partition {name}, {cpus}",
                         "lower `cpus_per_task`, or another partition"))
    megabytes, memory = _megabytes(wish.mem), words.get("MaxMemPerNode", "")
    if megabytes and memory.isdigit() and megabytes > int(memory):
        problems.append((f"mem {wish.mem} is above the MaxMemPerNode of partition {name}, {memory} MB",
                         "lower `mem`, or another partition"))
    return problems


def _words(line: str) -> dict[str, str]:
    words: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals:
            words.setdefault(key, value)
    return words


def _megabytes(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", text.upper())
    return int(found[1]) * _UNITS[found[2]] if found else None
