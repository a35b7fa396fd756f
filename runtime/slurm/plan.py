"""What is written into a run directory before anything happens on the login node, and what its job says more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bounds import bounds
from ..ssh.plan import compile_for, host_facts, write_all

if TYPE_CHECKING:
    from ...schema.config import Config
    from ..store import Run

JOB_SCRIPT = "job.sh"


def write_plan(config: Config, run: Run, run_dir: Path) -> dict[str, Any]:
    """Writes the run's scripts and the facts of its place; gives what the job message says of its scheduler."""
    from ..trainers import Trainers

    backend = config.backends[run.backend]
    compiled = compile_for(config, run)
    write_all(run_dir, compiled.files, host_facts(config, backend, Trainers()[run.trainer]))
    return {"job_script": compiled.files[JOB_SCRIPT], "scheduler": scheduler(backend.keys)}


def scheduler(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The scheduler as the agent has to know it: its name, its cluster where one is named, and our bounds."""
    b = bounds()
    return {
        "name": "slurm", "cluster": cluster(keys.get("sbatch_args") or ()), "submit_s": b.slurm_submit_s,
        "query_s": b.slurm_query_s, "cancel_s": b.slurm_cancel_s, "doubt_s": b.slurm_doubt_s,
        "settle_s": b.slurm_settle_s,
    }


def cluster(sbatch_args: Sequence[str]) -> str | None:
    """The cluster that a flag names: a job whose id is unknown is looked for there. getopt takes any beginning."""
    for text in sbatch_args:
        flag, _, value = text.partition("=")
        if len(flag) > len("--clu") and "--clusters".startswith(flag) and value:
            return value
    return None
