"""The sbatch flags of a job, in the one order in which every job.sh has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Config key -> flag, in the order of the script.
FLAGS = {
    "partition": "--partition",
    "account": "--account",
    "qos": "--qos",
    "constraint": "--constraint",
    "nodelist": "--nodelist",
    "exclude": "--exclude",
    "reservation": "--reservation",
    "gres": "--gres",
    "time": "--time",
    "cpus_per_task": "--cpus-per-task",
    "mem": "--mem",
    "nice": "--nice",
    "mail_type": "--mail-type",
    "mail_user": "--mail-user",
}


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def fixed_flags(keys: Mapping[str, Any]) -> tuple[str, ...]:
    """The flags that every job has, after its name."""
    # A requeued job must add to its log: by default it truncates it (seen on Slurm 22.05).
    requeue = ("--requeue", "--open-mode=append") if keys.get("requeue") else ("--no-requeue",)
    flags = ("--output=slurm.out", *requeue)
    # sbatch's own default, said aloud; a site's or a user's other choice comes through sbatch_args.
    exports = any(str(arg).partition("=")[0] == "--export" for arg in keys.get("sbatch_args") or ())
    return flags if exports else (*flags, "--export=ALL")


def configured_flags(keys: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(names of the keys that are set, their flags), both in FLAGS's order."""
    names = tuple(key for key in FLAGS if keys.get(key) is not None)
    return names, tuple(f"{FLAGS[key]}={_value(keys[key])}" for key in names)
