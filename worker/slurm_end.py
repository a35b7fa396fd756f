"""How an agent explains the end of a Slurm job that its worker did not explain."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from typing import Optional

from . import protocol, slurm_why
from .agent_worker import Trouble, left_alone
from .jobdir import JobDir
from .slurm import OUTPUT, Look
from .slurm_record import Record

NO_SBATCH = "has no sbatch on PATH, so it cannot submit jobs"
ALONE_HINT = "its agent was gone for longer than heartbeat_timeout_s; `on_disconnect: finish` lets a job go on alone"
FIRST_LINE_HINT = ("a startup file of your login shell (~/.bash_profile or ~/.profile) ended the job: none may exit, "
                   "or exec another shell, where nobody types")
_TRIED, _ROOM = "room.tmp", 1 << 16
NO_SBATCH_HINT = "not a login node, or a PATH set by login shells only: set PATH under `env`"
#: What Slurm's words do not say themselves.
_REFUSED = (
    (r"MaxSubmitJob|GrpSubmitJob", "as many jobs as the account may have are in the queue: start the run again when "
     "some have ended"),
    (r"accounting/QOS policy", "more than the account may ask for: lower time, gres, mem or cpus_per_task, or wait "
     "until its other jobs have ended"),
    (r"node configuration is not available", "no node of the partition has that: lower gres, mem or cpus_per_task, or "
     "another partition"),
)


def explain(jobdir: JobDir, record: Record, seen: Optional[Look], code: Optional[int], told: bool) -> Optional[Trouble]:
    """None when the exit code, or what the worker itself ``told``, is explanation enough. ``seen``: what Slurm said
    last of the job. Nobody here asked for this end."""
    if record.refused:
        return _refusal(record.refused)
    if code == protocol.EXIT_OK and told:
        return None
    if code is not None and protocol.EXIT_OK < code <= 128 and code != protocol.EXIT_CANCELLED:
        return None if told else _script_said(jobdir) or _no_room(jobdir, record) or _memory(jobdir, record, seen)
    why = _why(jobdir, record, seen)
    if code == protocol.EXIT_OK:
        why = why if why == slurm_why.MEMORY else None  # the worker was killed, and something else ended well
    elif code == protocol.EXIT_CANCELLED:
        alone = left_alone(jobdir) if told and why in (None, slurm_why.CANCELLED) else ""
        if alone:
            return Trouble("left_alone", "SLURM job %s: the worker stopped itself: %s" % (record.job_id, alone),
                           ALONE_HINT)
        why = why or slurm_why.CANCELLED
    if why is not None:
        return _ended(record, why)
    if code is None:
        return _no_room(jobdir, record) or _no_first_line(record, seen) or _silent(record)
    return None


def _ended(record: Record, why: str) -> Trouble:
    words = "SLURM job %s ended before the worker finished: %s" % (record.job_id, why)
    return Trouble("slurm", words, slurm_why.HINTS[why])


def _memory(jobdir: JobDir, record: Record, seen: Optional[Look]) -> Optional[Trouble]:
    """The kernel may have killed a child of the worker, which then failed without a last word."""
    return _ended(record, slurm_why.MEMORY) if _why(jobdir, record, seen) == slurm_why.MEMORY else None


def _silent(record: Record) -> Trouble:
    return Trouble("slurm", "SLURM job %s left the queue without reporting a result" % record.job_id,
                   "the run log has its last output")


def _no_first_line(record: Record, seen: Optional[Look]) -> Optional[Trouble]:
    """The claim is the first thing that job.sh makes; before it there is the login shell alone."""
    if record.claimed() or seen is None or seen.state not in ("COMPLETED", "FAILED"):
        return None
    words = "SLURM job %s ended before the first line of its script (exit code %s)"
    return Trouble("slurm", words % (record.job_id, seen.exit.partition(":")[0] or "?"), FIRST_LINE_HINT)


def _no_room(jobdir: JobDir, record: Record) -> Optional[Trouble]:
    """A full disk, or a quota that is spent, takes the worker's last words along; whether it is so is tried."""
    try:
        jobdir.write(_TRIED, b"\0" * _ROOM)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
    else:
        return None
    finally:
        with contextlib.suppress(OSError):
            jobdir.remove(_TRIED)
    words = "SLURM job %s ended without a result: no space left in %s" % (record.job_id, jobdir.root)
    return Trouble("no_space", words, "make room there, or point remote_dir at another file system")


def _refusal(words: str) -> Trouble:
    if words.endswith(NO_SBATCH):
        return Trouble("no_sbatch", words, NO_SBATCH_HINT)
    hint = next((hint for said, hint in _REFUSED if re.search(said, words)), "mend the key of the config that it names")
    return Trouble("sbatch", "sbatch refused the job: %s" % words, hint)


def _why(jobdir: JobDir, record: Record, seen: Optional[Look]) -> Optional[str]:
    told = slurm_why.from_output(_tail(jobdir, OUTPUT), record.job_id)
    asked = slurm_why.from_look(seen)
    # after a restart slurm.out has the ends of earlier attempts, too
    return (asked or told) if record.restarts else (told or asked)


def _script_said(jobdir: JobDir) -> Optional[Trouble]:
    """job.sh's own last words in stderr.log."""
    for line in reversed(_tail(jobdir, protocol.STDERR_FILE).splitlines()):
        mark, found, words = line.partition("potato-training: ")
        if found and not mark:
            return Trouble("job_script", words[:2000], "the run log has the end of its output")
    return None


def _tail(jobdir: JobDir, name: str) -> str:
    with contextlib.suppress(OSError), open(jobdir.path(name), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - protocol.TAIL_BYTES))
        return file.read(protocol.TAIL_BYTES).decode("utf-8", "replace")
    return ""
