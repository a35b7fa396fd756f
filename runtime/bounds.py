"""Every wait of the supervisor, in seconds, in one place, so that tests can have shorter ones.

``POTATO_TRAINING_BOUNDS`` (a JSON object, e.g. ``{"heartbeat_timeout_s": 3}``) replaces single values; it
is meant for tests and for an odd machine, not for ordinary settings, which are keys of config.yaml.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import NamedTuple

from ..worker.protocol import AGENT_GIVE_UP_S, HEARTBEAT_TIMEOUT_S


class Bounds(NamedTuple):
    #: Between two looks at the ledger when nothing woke us.
    tick_s: float = 0.1
    #: A gap between two looks longer than this means that we were stopped or asleep ourselves: the
    #: agents then get their whole heartbeat_timeout_s again.
    slept_s: float = 5.0
    #: Silence of an agent on the local backend, which has no key for it.
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    #: How long at least an agent-backend agent without a server keeps its run.
    agent_give_up_s: float = AGENT_GIVE_UP_S
    #: What an agent may take beyond max_wall_seconds and the grace before the run is ended from here.
    wall_slack_s: float = 10.0
    #: Starting a local agent: a Python start and a lock, seconds on a busy machine.
    agent_start_s: float = 60.0
    #: After SIGKILL a process is gone at once, unless it hangs in the kernel.
    kill_s: float = 5.0
    #: An agent that has reported ends of itself; after this long it is ended.
    farewell_s: float = 5.0
    #: Beyond its give_up_s and the grace, what an agent-backend agent may take to end its worker.
    agent_slack_s: float = 60.0
    #: Between two tries to let go of something: grows from the first to the second.
    release_first_s: float = 0.2
    release_most_s: float = 600.0
    #: A supervisor with nothing else to do stays up so long for something that cannot be let go of.
    release_give_up_s: float = 86400.0
    #: Between two tries to deliver a notification: grows from the first to the second.
    notify_first_s: float = 2.0
    notify_most_s: float = 300.0
    #: A supervisor that has not taken its lock after this long will not; its log says why.
    supervisor_start_s: float = 20.0
    #: A front door that looks whether a supervisor runs holds the lock for a moment.
    lock_patience_s: float = 2.0
    #: ssh's own bound on a connection that nobody answers, and ours on the whole login.
    ssh_connect_s: float = 15.0
    ssh_login_s: float = 60.0
    #: A short script over a connection that stands.
    ssh_call_s: float = 60.0
    #: A word to the kept connection on this machine.
    ssh_local_s: float = 5.0
    #: Looking at a host: nvidia-smi and an import of torch have bounds of their own there.
    ssh_probe_s: float = 200.0
    #: Installing packages, and copying the code.
    ssh_venv_s: float = 3600.0
    ssh_code_s: float = 300.0
    #: A copy of model files that sends no byte for so long is given up.
    copy_stall_s: float = 180.0
    #: Between two logins while a connection is lost: grows from the first to the second.
    login_first_s: float = 0.5
    login_most_s: float = 20.0
    #: Where it refuses the login, or is not the one that is known: as rarely as no host shuts anybody out for.
    unwelcome_first_s: float = 60.0
    unwelcome_most_s: float = 600.0
    #: The agent's own on a login node: one sbatch, one question, one scancel; so long answered lookups must have
    #: found no job before it is submitted again; and until shared storage shows a file everywhere.
    slurm_submit_s: float = 120.0
    slurm_query_s: float = 60.0
    slurm_cancel_s: float = 100.0
    slurm_doubt_s: float = 60.0
    slurm_settle_s: float = 90.0
    #: Until a job is proven gone, beyond what its processes get to end: a controller may be slow to answer.
    slurm_proof_s: float = 260.0


@cache
def bounds() -> Bounds:
    """The bounds of this process. A value that is no number, or a name that is none, is passed over."""
    try:
        given = json.loads(os.environ.get("POTATO_TRAINING_BOUNDS", "{}"))
    except ValueError:
        given = {}
    numbers = given.items() if isinstance(given, dict) else ()
    return Bounds(**{name: float(v) for name, v in numbers if name in Bounds._fields and isinstance(v, (int, float))})
