"""An agent on a login node that submits its workers to Slurm: where it may work, and its job script.

The script is made on this machine, from a file on this machine; the server sends none that counts here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import List, Optional

from .agent_home import Usage
from .slurm_launch import SlurmLauncher

#: Local to each node: what the login node writes there, the compute nodes do not see.
_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108


def slurm_launcher(config: str, backend: str, python: str, workdir: Optional[str]) -> SlurmLauncher:
    """Raises Usage."""
    if workdir is None:
        raise Usage("--slurm-config needs --workdir: a directory that login node and compute nodes share")
    for path in (os.path.abspath(os.path.expanduser(workdir)), os.path.realpath(os.path.expanduser(workdir))):
        local = [place for place in _NODE_LOCAL if path == place or path.startswith(place + "/")]
        if local:
            raise Usage("--workdir %s is under %s, which is local to each node: the compute nodes would not see what "
                        "the login node puts there" % (workdir, local[0]))
    if "%" in os.path.realpath(os.path.expanduser(workdir)):
        raise Usage("--workdir %s has a %% in its path, in whose place Slurm puts a number or a name" % workdir)
    command: List[str] = [sys.executable, "-m", "potato_training.cli.agent_script", config, backend, python]
    made = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = made.stderr.decode("utf-8", "replace").strip()
    if made.returncode == 2:
        raise Usage(said)
    try:
        told = json.loads(made.stdout.decode("utf-8"))
        script, interval = told["script"], told["poll_interval_s"]
    except (ValueError, KeyError, TypeError):
        why = (said.splitlines() or ["no reason given"])[-1]
        raise Usage("the job script could not be made here: %s" % why) from None
    if said:
        os.write(2, (said + "\n").encode("utf-8", "replace"))
    return SlurmLauncher(script, interval)
