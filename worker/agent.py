"""python -m potato_training.worker.agent --job-dir DIR
python -m potato_training.worker.agent --server URL --backend NAME ...

The first is the agent of one job. It is started by a supervisor (beside it, or through a login) with one line of
JSON on stdin, ``{"socket": ..., "token": ...}``: where its server is and what to say there. Started
again on the same job directory, it brings the news to the agent that is alive, or takes its place.

The second asks a server for jobs until it is stopped: ``potato training agent``, see ``agent_poll``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from typing import List, Optional, Sequence, Tuple

from . import protocol
from .agent_claim import NoJob
from .agent_ears import Ears, read_line
from .agent_job import GaveUp, JobAgent
from .agent_launch import JobLauncher, LocalLauncher
from .agent_link import Link, Superseded, read_attach, write_attach
from .agent_voice import keep, say
from .jobdir import JobDir, Lock, hostname

_DOOR = re.compile(r"/tmp/p-[0-9a-f]{8}/s")  # noqa: S108 - as the server names it
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,512}")
#: A unix socket's path may have so many bytes on every system that we know (macOS 103, Linux 107).
_LONGEST_SOCKET = 103


def main(arguments: Optional[List[str]] = None) -> int:
    """Exit code 0: the job is reported, or another agent has it. 1: not. 2: wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if any(argument.split("=")[0] in ("--server", "--backend") for argument in arguments):
        from . import agent_poll

        return agent_poll.main(arguments)
    job_dir = parse_arguments(arguments)
    os.umask(0o077)
    try:
        hello = read_line(0)
        address, token = parse_hello(hello)
    except (ValueError, TimeoutError) as error:
        say("%s" % error)
        return 2
    jobdir = JobDir(job_dir)
    jobdir.create()
    return tunnel(jobdir, address, token, Ears(0), parse_gpus(hello), json.loads(hello).get("forwarded") is True)


def parse_arguments(arguments: List[str]) -> str:
    """The job directory."""
    if len(arguments) == 2 and arguments[0] == "--job-dir":
        return arguments[1]  # as every launcher says it: argparse would cost each agent one or two MiB
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m potato_training.worker.agent", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--job-dir", required=True, metavar="DIR", help="the job's directory; made when missing")
    return str(parser.parse_args(arguments).job_dir)


def tunnel(
    jobdir: JobDir, address: str, token: str, ears: Ears, gpus: Sequence[str] = (), forwarded: bool = False
) -> int:
    """One job through a socket: as its agent, or as the messenger to the agent that is alive. ``gpus``: UUIDs
    of the cards that would do for the worker. ``forwarded``: the socket was made here by a login."""
    lock = Lock(jobdir.path(protocol.AGENT_LOCK))
    ours = lock.take()
    if not ours:
        time.sleep(0.1)  # a supervisor that asks whether the lock is held has it for an instant
        ours = lock.take()
    if not ours and lock.holder().get("host", hostname()) == hostname():
        bring_news(jobdir, address, token)
        announce("attached")
        return 0
    # a lock that is held on another machine (shared storage): that agent sees the higher generation and goes
    attach = read_attach(jobdir)
    generation = (attach[0] if attach else 0) + 1
    write_attach(jobdir, generation, address, token)
    announce("agent %d generation %d" % (os.getpid(), generation))
    ears.listen_to_signals()
    ears.at_the_end_of_stdin(lambda: keep(jobdir))
    used: List[str] = []
    try:
        while not work(jobdir, generation, ears, gpus, used):
            say("somebody has just attached; going on")
    except Superseded as other:
        say("%s; leaving everything to it" % other)
        return 0
    except (GaveUp, NoJob) as error:
        say("%s" % error)
        return 1
    except OSError as error:  # a full disk, mostly; the next agent finds what is there
        say("%s: %s" % (jobdir.root, error.strerror or error))
        return 1
    finally:
        if forwarded:
            shut_doors(jobdir, generation, used)
    close_door(jobdir, generation)
    return 0


def work(jobdir: JobDir, generation: int, ears: Ears, gpus: Sequence[str], used: List[str]) -> bool:
    """Does the job as far as the link allows. True when it is reported; False when the link was given up
    in the very moment in which somebody attached. Adds to ``used`` the sockets that it was at."""
    _, address, token = read_attach(jobdir) or (0, "", "")
    link = Link(address, token, jobdir=jobdir, generation=generation)
    try:
        JobAgent(jobdir, link, JobLauncher(LocalLauncher(gpus=gpus)), ears, say=say).run()
    except GaveUp:
        now = read_attach(jobdir)
        if now is None or now[0] != generation or not now[1] or now[1:] == (link.address, link.token):
            raise
        return False
    finally:
        used += link.used
        link.close()
    return True


def close_door(jobdir: JobDir, generation: int) -> None:
    """Removes the token from attach.json, which is worth nothing any more. A file that is gone stays gone, and a later
    agent's is its own."""
    attach = read_attach(jobdir)
    if attach is not None and attach[0] == generation:
        with contextlib.suppress(OSError):
            write_attach(jobdir, generation)


def shut_doors(jobdir: JobDir, generation: int, used: Sequence[str]) -> None:
    """Removes the directories of the sockets that logins have made for this agent, which leaves: whoever comes next
    makes one of his own, and may come by another login node."""
    later = read_attach(jobdir)
    for address in used:
        if _DOOR.fullmatch(address) and (later is None or later[0] <= generation or later[1] != address):
            import shutil

            shutil.rmtree(os.path.dirname(address), ignore_errors=True)


def bring_news(jobdir: JobDir, address: str, token: str, seconds: float = 5.0) -> None:
    """Tells the agent that is alive where its server is now."""
    until = time.monotonic() + seconds
    attach = read_attach(jobdir)
    while attach is None and time.monotonic() < until:  # it has the lock and is about to write its own
        time.sleep(0.02)
        attach = read_attach(jobdir)
    write_attach(jobdir, attach[0] if attach else 1, address, token)


def parse_hello(line: bytes) -> Tuple[str, str]:
    """(socket, token) of the line on stdin. Raises ValueError with a sentence that holds neither."""
    try:
        value = json.loads(line.decode("utf-8"))
    except ValueError:
        raise ValueError("the line on stdin is no JSON") from None
    address = value.get("socket") if isinstance(value, dict) else None
    token = value.get("token") if isinstance(value, dict) else None
    if not isinstance(address, str) or not address.startswith("/") or "\0" in address:
        raise ValueError("the line on stdin names no socket")
    if len(os.fsencode(address)) > _LONGEST_SOCKET:
        raise ValueError("the socket's path is longer than %d bytes" % _LONGEST_SOCKET)
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError("the line on stdin has no token")
    return address, token


def parse_gpus(line: bytes) -> List[str]:
    """The UUIDs that the line names, if it does; for a line that ``parse_hello`` has taken."""
    named = json.loads(line.decode("utf-8")).get("gpus")
    return [uuid for uuid in named if isinstance(uuid, str)] if isinstance(named, list) else []


def announce(text: str) -> None:
    """A line for whoever started this agent; who is gone already misses it."""
    try:
        os.write(1, (text + "\n").encode())
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
