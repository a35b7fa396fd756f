"""python -m potato_training.worker.release JOB_DIR SECONDS

Ends what is left of a job: its agent and its worker on this machine, found by the job directory, told by pid and
start time; and its Slurm job, which is seen to have left the queue. They get so many seconds to end of themselves:
none when the job was never reported, and then its last output is told here.
Prints key=value lines; exit code 0 when nothing is left.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import List

from . import protocol
from .agent_report import tail_lines
from .jobdir import Identity, JobDir, Lock, hostname
from .slurm import OUTPUT
from .slurm_record import SLURM_FILE

_KILL_S = 5.0


class Elsewhere(Exception):
    """A process of the job is on another machine."""


def main(arguments: List[str]) -> int:
    jobdir, patience = JobDir(arguments[0]), float(arguments[1])
    began = time.monotonic()
    try:
        left = wait([*agents(jobdir), *workers(jobdir)], patience)
        for process in left:
            process.kill_group()
        stuck = wait(left, _KILL_S)
        if not stuck:
            # an agent that was just starting the worker when it was killed
            late = wait(workers(jobdir), 0)
            for process in late:
                process.kill_group()
            left += late
            stuck = wait(late, _KILL_S)
    except Elsewhere as error:
        say("error", str(error))
        return 1
    if stuck:
        say("error", "processes of this run do not die: groups %s" % [process.pgid for process in stuck])
        return 1
    if jobdir.has(SLURM_FILE):
        from .slurm_release import release as release_slurm

        why = release_slurm(jobdir, max(0.0, patience - (time.monotonic() - began)))
        if why:
            say("error", why)
            return 1
    if left:
        say("ended", " ".join(str(process.pid) for process in left))
    if left or not patience:
        for name in (OUTPUT, protocol.STDERR_FILE):
            for line in tail_lines(jobdir.path(name)):
                say(name.partition(".")[0], line)
    for line in tail_lines(jobdir.path(protocol.AGENT_STDERR_FILE)):
        say("agent", line)
    return 0


def agents(jobdir: JobDir) -> List[Identity]:
    """The agent that holds the job's lock, if one does."""
    lock = Lock(jobdir.path(protocol.AGENT_LOCK))
    if not lock.held():
        return []
    holder = lock.holder()
    if holder.get("host") != hostname() and jobdir.has(SLURM_FILE):
        from .slurm_release import send_away

        send_away(jobdir)
        return []
    if holder.get("host") != hostname():
        raise Elsewhere("the agent of this run is on %s, and this is %s" % (holder.get("host"), hostname()))
    try:
        return [Identity.of(int(holder["pid"]))]
    except (KeyError, ValueError, ProcessLookupError):
        return []


def workers(jobdir: JobDir) -> List[Identity]:
    """The worker that was started here, dead or alive: its children may have outlived it."""
    worker = Identity.from_json(jobdir.read_json(protocol.WORKER_FILE))
    if worker is None:
        return []
    if worker.host != hostname():
        raise Elsewhere("the worker of this run is on %s, and this is %s" % (worker.host, hostname()))
    return [worker]


def wait(processes: List[Identity], seconds: float) -> List[Identity]:
    """Those whose groups still live after waiting so long for their end."""
    until = time.monotonic() + seconds
    while True:
        left = [process for process in processes if process.group()]
        if not left or time.monotonic() >= until:
            return left
        time.sleep(0.05)


def say(key: str, value: str) -> None:
    print("%s=%s" % (key, value), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.exit(main(sys.argv[1:]))
