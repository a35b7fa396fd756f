"""Why Slurm ended a job: from what slurmstepd wrote into slurm.out, and from what scontrol says. Pure."""

from __future__ import annotations

import re
from typing import Optional

from .slurm import Look

LIMIT = "it reached its time limit"
NODE = "its node failed"
PREEMPTED = "it was preempted"
MEMORY = "it ran out of memory"
CANCELLED = "it was cancelled from outside"
LAUNCH = "it could not be launched"

HINTS = {
    LIMIT: "raise `time`, or train on fewer items; keep_remote keeps slurm.out",
    NODE: "start the run again; the cluster's administrators know about the node",
    PREEMPTED: "start the run again, set requeue, or use a partition whose jobs are not preempted",
    MEMORY: "raise `mem`, or a smaller batch_size or max_length",
    CANCELLED: "start the run again",
    LAUNCH: "usually the job directory is missing or not writable on the node",
}

_END = re.compile(r"^slurmstepd\S*: error: \*\*\* (?:JOB|STEP) (\d+)\S* ON .*CANCELLED AT (.*?)\*\*\*", re.MULTILINE)
_MEMORY = re.compile(r"^slurmstepd\S*: error: .*(?:oom[-_ ]kill|out of memory)", re.MULTILINE | re.IGNORECASE)
_STATES = {
    "TIMEOUT": LIMIT, "DEADLINE": LIMIT, "NODE_FAIL": NODE, "BOOT_FAIL": NODE, "PREEMPTED": PREEMPTED,
    "OUT_OF_MEMORY": MEMORY, "CANCELLED": CANCELLED, "REVOKED": CANCELLED, "LAUNCH_FAILED": LAUNCH,
}


def from_output(text: str, job_id: str) -> Optional[str]:
    """The last word of slurmstepd; None when it says nothing of an end, or that the job comes back."""
    found = None
    for match in _END.finditer(text):
        if match[1] == job_id:
            found = match[2]
    if found is not None:
        for words, why in (("TIME LIMIT", LIMIT), ("PREEMPTION", PREEMPTED), ("NODE FAILURE", NODE)):
            if "DUE TO " + words in found:
                return why
    if _MEMORY.search(text):
        return MEMORY
    if found is not None and "DUE TO" not in found:
        return CANCELLED
    return None


def from_look(look: Optional[Look]) -> Optional[str]:
    """What scontrol's state means; None for an end that Slurm had no hand in, or does not tell."""
    if look is None:
        return None
    if look.reason == "JobLaunchFailure" or look.exit == "0:53":  # no directory for slurm.out: nothing ran
        return LAUNCH
    return _STATES.get(look.state)


def ran(look: Optional[Look]) -> bool:
    """False for a job that is known to have ended without ever having been on a node."""
    return look is None or not look.state or (bool(look.node) and from_look(look) != LAUNCH)
