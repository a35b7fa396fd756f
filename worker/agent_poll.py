"""The agent that a person starts where nothing can connect to: it asks the server for work, for ever.

Every job has a directory of its own below the agent's folder and is done there by the same code as
everywhere else; an agent that was killed goes on with what it finds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any, Dict, List, Optional, Set
from urllib.parse import urlsplit

from . import protocol
from .agent_claim import NoJob, claim_body
from .agent_ears import Ears
from .agent_home import TOKEN_VARIABLE, Home, Usage, find_token
from .agent_job import GaveUp, JobAgent
from .agent_launch import Launcher, LocalLauncher
from .agent_link import Down, Gone, Link, Rejected
from .agent_message import is_run_id
from .http_client import Answer
from .jobdir import JobDir

DEFAULT_WORKDIR = "~/.cache/potato-training"
RETRY_AFTER_S = (1.0, 300.0)  #: what a server may say that is kept


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``potato training agent``."""
    parser.add_argument("--server", required=True, metavar="URL", help="the annotation server")
    parser.add_argument("--backend", required=True, metavar="NAME", help="this machine's name in the server's config")
    parser.add_argument("--token-file", metavar="FILE", help="the token, mode 0600 (else %s)" % TOKEN_VARIABLE)
    parser.add_argument("--python", metavar="PYTHON", help="the worker's interpreter (else this one)")
    parser.add_argument("--workdir", metavar="DIR", help="jobs and models (%s)" % DEFAULT_WORKDIR)
    parser.add_argument("--slurm-config", metavar="FILE", help="submit workers through SLURM, as this JSON file says")
    parser.add_argument("--once", action="store_true", help="end after one job")
    parser.add_argument("--keep", action="store_true", help="keep bundles after the end of their job")
    parser.add_argument("--ca-file", metavar="FILE", help="certificates to trust instead of the system's")


def main(arguments: Optional[List[str]] = None) -> int:
    """``run`` for a command line of its own."""
    parser = argparse.ArgumentParser(
        prog="potato training agent",
        description="Asks a server for training jobs and runs them on this machine, until stopped.",
        epilog="example: POTATO_TRAINING_TOKEN=... potato training agent --server https://annotate.example.org "
               "--backend lab-workstation",
    )
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def run(options: argparse.Namespace) -> int:
    """Exit code 0: stopped, or --once and the job is reported. 1: it could not go on. 2: wrong usage."""
    os.umask(0o077)
    try:
        token = find_token(options.token_file, os.environ)
        os.environ.pop(TOKEN_VARIABLE, None)
        workdir = options.workdir or DEFAULT_WORKDIR
        home = Home(workdir, options.backend)
        link = _link(options.server, token, options.ca_file)
        launcher = _launcher(options)
        home.open()
    except Usage as error:
        say(str(error))
        return 2
    except OSError as error:
        say("%s: %s" % (workdir, error.strerror or error))
        return 1
    ears = Ears()
    ears.listen_to_signals()
    try:
        return Poll(home, link, ears, launcher, once=options.once, keep=options.keep).run()
    except Rejected:
        say("the server does not take this token for %s: register the backend again for a new one" % options.backend)
        return 1
    except OSError as error:
        say("%s: %s" % (workdir, error.strerror or error))
        return 1
    finally:
        link.close()


def _launcher(options: argparse.Namespace) -> Launcher:
    python = options.python or sys.executable
    if options.slurm_config is None:
        return LocalLauncher(python, trusted=False)
    from .agent_slurm import slurm_launcher  # others need not pay for it

    return slurm_launcher(options.slurm_config, options.backend, python, options.workdir)


def _link(server: str, token: str, ca_file: Optional[str]) -> Link:
    from .http_tcp import tcp_connect

    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Usage("%s is not the URL of a server" % server)
    if parts.username is not None:
        raise Usage("the URL of the server must not hold a name or password")
    try:
        connect = tcp_connect(os.environ, ca_file)
    except OSError as error:
        raise Usage("%s is not a file of certificates: %s" % (ca_file, error)) from None
    return Link(server, token, connect=connect)


class Poll:
    """``run`` asks and works until a signal, or until one job is done with ``once``. Raises Rejected."""

    def __init__(self, home: Home, link: Link, ears: Ears, launcher: Launcher, *, once: bool, keep: bool):
        self._home, self._link, self._ears, self._launcher = home, link, ears, launcher
        self._once, self._keep = once, keep
        self._body = claim_body(home.agent_id())
        self._body["gpus"] = gpus()
        self._told: Set[str] = set()  # why there was no answer, since the last one

    def run(self) -> int:
        say("asking %s for work as %s" % (self._link.address, self._home.backend))
        while not self._ears.asked_to_end:
            for jobdir in self._home.unfinished() or self._claimed():
                if self._do(jobdir) and self._once:
                    return 0
                if self._ears.asked_to_end:
                    break
        return 1 if self._once else 0

    def _claimed(self) -> List[JobDir]:
        """One new job, or none after the pause that the server, or its absence, asks for."""
        answer = self._ask()
        if answer is None:
            return []
        message = answer.json
        if answer.status == 200 and is_run_id(message.get("run_id")):
            jobdir = self._home.jobdir(message["run_id"])
            jobdir.write_json(protocol.JOB_FILE, message)
            return [jobdir]
        if answer.status != 204:
            say("the server answered the claim with %d: %s" % (answer.status, message.get("error", "")))
        self._ears.rest(_retry_after(answer))
        return []

    def _ask(self) -> Optional[Answer]:
        while not self._link.ready():
            self._ears.rest(0.25)
            if self._ears.asked_to_end:
                return None
        try:
            answer = self._link.call(lambda client: client.post(protocol.API_PREFIX + "/claim", self._body))
        except Down as error:
            if str(error) not in self._told:
                say("no answer from %s (%s); trying again until there is one" % (self._link.address, error))
            self._told.add(str(error))
            return None
        except Gone as error:
            say("the server has no place for agents here: %s" % error)
            self._ears.rest(RETRY_AFTER_S[0] * 10)
            return None
        if self._told:
            say("%s answers again" % self._link.address)
            self._told.clear()
        return answer

    def _do(self, jobdir: JobDir) -> bool:
        """One job; True when the server knows its end."""
        name = os.path.basename(jobdir.root)
        say("job %s" % name)
        give_up_s = self._link.give_up_s
        try:
            JobAgent(jobdir, self._link, self._launcher, self._ears, say=say).run()
            say("job %s is reported" % name)
        except NoJob as error:
            say("job %s: %s" % (name, error))
        except GaveUp as error:
            say("job %s: %s; it is kept in %s until the server answers" % (name, error, jobdir.root))
            self._ears.rest(1.0)
            return False
        finally:
            self._link.give_up_s = give_up_s
        self._home.finish(jobdir, self._keep)
        return True


def _retry_after(answer: Answer) -> float:
    try:
        return min(max(float(answer.headers.get("Retry-After", 10)), RETRY_AFTER_S[0]), RETRY_AFTER_S[1])
    except (TypeError, ValueError):
        return 10.0


def gpus() -> List[Dict[str, Any]]:
    """Names and memory of the cards that nvidia-smi shows; none where it is missing or fails."""
    import subprocess

    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,uuid,memory.total", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=15,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in asked.stdout.decode("utf-8", "replace").splitlines() if asked.returncode == 0 else []:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3:
            found.append({
                "name": fields[0][:100], "uuid": fields[1][:100],
                "memory_mb": int(fields[2]) if fields[2].isdigit() else None,  # [N/A] where memory is shared
            })
    return found[:64]


def say(text: str) -> None:
    """A line with its time on stderr, for whoever looks at the terminal or the journal."""
    line = "%s %s\n" % (time.strftime("%Y-%m-%d %H:%M:%S"), text)
    try:
        os.write(2, line.encode("utf-8", "replace"))
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
