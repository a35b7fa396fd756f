"""How an agent is started. One module a kind of backend; from the claim on they are all the same.

A launcher knows how to start an agent on a job directory (or to attach to one that is there), how to
bring the model files home, and how to let go of everything on the far side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...schema.config import Config
    from ..store import Run

#: The kinds of backend on which this version can start runs.
KINDS = ("local", "ssh", "slurm", "agent")


class LaunchError(Exception):
    """No agent could be started; ``str`` is the reason for the run's record, ``hint`` the remedy."""

    def __init__(self, reason: str, hint: str = ""):
        super().__init__(reason)
        self.hint = hint


class ConnectionLost(LaunchError):
    """The way to the machine is not there, or broke: the weather, which may be better in a moment."""


class Unwelcome(ConnectionLost):
    """The way is there, and the machine lets nobody in, or is not the one it was. Mostly somebody has to do something
    first, and machines shut out whoever knocks too often."""


@dataclass
class Desk:
    """What a launcher may write and ask while it works: the run's record, its log, and whether to go on."""

    run_dir: Path
    #: The line that says what is happening now.
    step: Callable[[str], None]
    #: Lines of the run log.
    log: Callable[..., None]
    #: Facts of the run's record.
    note: Callable[..., None]
    #: Writes down what ``release`` needs to find everything again; before it is taken hold of.
    owe: Callable[[Mapping[str, Any]], None]
    #: Called several times a second while something is waited for; raises when the waiting is to end.
    check: Callable[[], None]


class Launcher(Protocol):
    """One run's way to its machine."""

    #: The machine as a person knows it: the backend's name where it has one.
    place: str
    #: Where it is.
    address: str

    def launch(self, socket: str, new_token: Callable[[], str], *, known: bool = False) -> bool:
        """Starts the run's agent, or tells the one that is there where the server is now.

        ``new_token`` makes the one before it worthless, so it is asked for at the last moment. ``known``:
        the far side has the job already. True when an agent was started, False when the one that was
        there is told. Raises LaunchError, and ConnectionLost when trying again may do.
        """
        ...

    def trouble(self) -> str:
        """Why no more word can be expected from the agent, or "" while it may be at work."""
        ...

    def lost(self, silent_s: float) -> str:
        """Why the connection must be made anew, or "". ``silent_s``: since the last word, or the last login."""
        ...

    def started(self) -> bool:
        """Whether the job directory is there: something of an earlier launch can be found again."""
        ...

    def fetch(self) -> list[str]:
        """Brings the model files into the run directory; gives warnings, raises nothing of a lost copy."""
        ...

    def leave(self) -> None:
        """The supervisor is ending, and the run goes on: lets go of what is held on this machine."""
        ...


def prepare(kind: str, config: Config, run: Run, run_dir: Path) -> dict[str, Any]:
    """Writes into the run directory what the run's launcher and its release will need, config or no config.

    Gives what the job message says beyond what all kinds have.
    """
    if kind == "ssh":
        from ..ssh.plan import write_plan

        write_plan(config, run, run_dir)
    if kind == "slurm":
        from ..slurm.plan import write_plan as write_slurm_plan

        return write_slurm_plan(config, run, run_dir)
    return {}


def make(kind: str, where: Any, run_id: str, desk: Desk, target: Mapping[str, Any]) -> Launcher:
    """The launcher for a run on a backend of this kind. ``target`` is what was owed last, if anything."""
    if kind == "local":
        from .local import LocalLauncher

        return LocalLauncher(where, run_id, desk, target)
    if kind == "ssh":
        from .ssh import SshLauncher

        return SshLauncher(run_id, desk, target)
    if kind == "slurm":
        from .slurm import SlurmLauncher

        return SlurmLauncher(run_id, desk, target)
    if kind == "agent":
        from .agent import AgentLauncher

        return AgentLauncher(str(target.get("backend") or "the agent's machine"), desk)
    raise LaunchError(f"this version cannot start runs on a backend of type {kind}")


def release(kind: str, where: Any, run_id: str, target: Mapping[str, Any], *, patience_s: float) -> list[str]:
    """Lets go of what a run held on its far side, once; gives lines for the run log.

    Processes get ``patience_s`` to end of themselves. Returning means that the far side confirmed; raises
    OSError or LaunchError when it did not (yet).
    """
    if kind == "local":
        from .local import release_local

        return release_local(where, run_id, target, patience_s)
    if kind == "ssh":
        from ..ssh.release import release_ssh

        return release_ssh(where, run_id, target, patience_s)
    if kind == "slurm":
        from .slurm import release_slurm

        return release_slurm(where, run_id, target, patience_s)
    if kind == "agent":
        from .agent import release_agent

        return release_agent(where, run_id)
    raise LaunchError(f"this version cannot release a backend of type {kind}")
