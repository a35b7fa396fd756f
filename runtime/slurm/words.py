"""What a run's record says of its job, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def job_words(facts: Mapping[str, Any]) -> str:
    """``SLURM job 4242 on node07; calls: sbatch 1, squeue 12``; "" for a run without a job."""
    machine = facts.get("machine")
    if not isinstance(machine, Mapping) or not machine.get("scheduler_job"):
        return ""
    cluster, node = machine.get("scheduler_cluster"), machine.get("node")
    words = f"SLURM job {machine['scheduler_job']}"
    words += f" of cluster {cluster}" if cluster else ""
    words += f" on {node}" if node else ""
    calls = machine.get("scheduler_calls")
    if isinstance(calls, Mapping) and calls:
        words += "; calls: " + ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
    return words
