"""An agent's own folder on a machine where a person started it: who it is, its token, and its jobs."""

from __future__ import annotations

import os
import re
import stat
from typing import Iterator, List, Mapping, Optional

from . import protocol
from .jobdir import JobDir, Lock, hostname, make_private_dir

TOKEN_VARIABLE = "POTATO_TRAINING_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,512}")
_BACKEND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: In a job directory: the server has acknowledged the result, nothing is to be done any more.
REPORTED_FILE = "reported"


class Usage(Exception):
    """Something about how the agent was started; the sentence is for the person who did."""


class Home:
    """``workdir``: one folder a backend, so that two agents of one machine never mix their jobs."""

    def __init__(self, workdir: str, backend: str):
        if not _BACKEND.fullmatch(backend):
            raise Usage("%r is not the name of a backend" % backend)
        self.backend = backend
        self._root = JobDir(os.path.join(os.path.expanduser(workdir), backend))

    def open(self) -> None:
        """Makes the folder and takes it. Raises Usage when another agent has it, OSError when it cannot be made."""
        self._root.create()
        self._lock = Lock(self._root.path("agent.lock"))
        if not self._lock.take():
            raise Usage(
                "an agent for backend %s is running here already (pid %s, %s); another --workdir lets both run"
                % (self.backend, self._lock.holder().get("pid", "?"), self._root.root)
            )

    def agent_id(self) -> str:
        """The same for every start in this folder: so an answer that got lost can be asked for again."""
        known = (self._root.read("agent-id") or "").strip()
        if not known:
            known = "%s-%s" % (hostname()[:100], os.urandom(6).hex())
            self._root.write("agent-id", known + "\n")
        return known

    def jobdir(self, run_id: str) -> JobDir:
        """A fresh or known job directory; ``run_id`` has been checked to be a plain name."""
        make_private_dir(self._root.path("jobs"))
        jobdir = JobDir(self._root.path("jobs", run_id))
        jobdir.create()
        return jobdir

    def unfinished(self) -> List[JobDir]:
        """Jobs that were claimed and not reported, oldest name first."""
        return [j for j in self._jobs() if j.has(protocol.JOB_FILE) and not j.has(REPORTED_FILE)]

    def finish(self, jobdir: JobDir, keep_bundle: bool) -> None:
        """Marks a job as reported and clears it away: the model files stay, and the bundle when it is wanted."""
        jobdir.write(REPORTED_FILE, "")
        spared = {protocol.ARTIFACTS_DIR, REPORTED_FILE} | ({protocol.BUNDLE_DIR} if keep_bundle else set())
        import shutil

        for name in os.listdir(jobdir.root):
            path = jobdir.path(name)
            if name in spared:
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                jobdir.remove(name)
        if set(os.listdir(jobdir.root)) == {REPORTED_FILE}:
            shutil.rmtree(jobdir.root, ignore_errors=True)

    def _jobs(self) -> Iterator[JobDir]:
        try:
            names = sorted(os.listdir(self._root.path("jobs")))
        except OSError:
            return
        for name in names:
            yield JobDir(self._root.path("jobs", name))


def find_token(token_file: Optional[str], environment: Mapping[str, str]) -> str:
    """The token in the file, else in the environment. Raises Usage; its sentence never holds the token."""
    if token_file is None:
        token = environment.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise Usage("no token: set %s, or name a file with --token-file" % TOKEN_VARIABLE)
        where = TOKEN_VARIABLE
    else:
        where = token_file
        try:
            with open(os.path.expanduser(token_file), "rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode & 0o077:
                    raise Usage("%s can be read by others (mode %04o): chmod 600 %s" % (token_file, mode, token_file))
                token = file.read(4096).decode("ascii", "replace").strip()
        except OSError as error:
            raise Usage("%s cannot be read: %s" % (token_file, error.strerror)) from None
    if not _TOKEN.fullmatch(token):
        raise Usage("what is in %s is no token" % where)
    return token
