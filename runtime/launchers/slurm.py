"""A cluster's login node: reached as any host is, but nothing is computed there.

The agent submits the job. An alias may lead to several login nodes that share their storage: a login that lands
on another one than before starts an agent there, which takes the job over.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..bounds import bounds
from ..places import Places
from ..slurm.login import read_login
from ..ssh import code
from ..ssh.line import Line
from ..ssh.probe import Probe, clock_note
from ..ssh.release import release_ssh
from . import ConnectionLost, LaunchError
from .ssh import _LEAST_FREE_MB, SshLauncher


class SlurmLauncher(SshLauncher):
    _missed_at: float | None = None     # since when the job directory is not to be seen

    def _look(self, line: Line, there: str, known: bool) -> Probe | None:
        self._desk.step(f"looking at {self.address}")
        said = self._run(line, "probe.sh", code.code_hash(), there, "no test", seconds=bounds().ssh_probe_s)
        now = time.time()
        if said.all("error"):
            raise LaunchError(said.one("error"), "mend it on the host, or the key of the config that names it")
        if known and not said.all("job"):
            self._miss()
        self._missed_at = None
        host = said.one("host")
        if self._held.host and host != self._held.host:
            self._desk.log(f"{self.address} led to {self._held.host} before and leads to {host} now")
        self._hold(replace(self._held, host=host))
        if known:
            return None
        probe = read_login(said, self._facts)
        if probe.free_mb is not None and probe.free_mb < _LEAST_FREE_MB:
            raise LaunchError(f"no space left on {self.address}: {probe.free_mb} MB free in {probe.root}",
                              "make room there, or point remote_dir at another file system")
        self._desk.log(f"{self.address} is {probe.host}, Python {probe.python}, {said.one('slurm') or 'Slurm'}")
        self._desk.log(*filter(None, [clock_note(said, self.address, now)]))
        if said.one("job_python") == "missing":
            self._desk.log("job_python is not on the login node; the compute nodes may have it")
        return probe

    def _miss(self) -> None:
        """No job directory: shared storage may show it late on another login node."""
        now = time.monotonic()
        self._missed_at = self._missed_at or now
        if now - self._missed_at < bounds().slurm_settle_s:
            raise ConnectionLost(f"the run's job directory is not to be seen on {self.address}")
        raise LaunchError("The server stopped during this run",
                          f"nothing of it could be found again on {self.address}: start it again")


def release_slurm(where: Places, run_id: str, target: Mapping[str, Any], patience_s: float) -> list[str]:
    """As on any host; the job is seen to have left the queue, which takes as long as Slurm does to say so."""
    return release_ssh(where, run_id, target, patience_s, proof_s=bounds().slurm_proof_s)
