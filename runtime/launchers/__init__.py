"""How an agent is started. One module a kind of backend; from the claim on they are all the same.

A launcher knows how to start an agent on a job directory (or to attach to one that is there), how to
bring the model files home, and how to let go of everything on the far side.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

#: The kinds of backend on which this version can start runs.
KINDS = ("local",)


class LaunchError(Exception):
    """No agent could be started; ``str`` is the reason for the run's record, ``hint`` the remedy."""

    def __init__(self, reason: str, hint: str = ""):
        super().__init__(reason)
        self.hint = hint


class Launcher(Protocol):
    """One run's way to its machine."""

    #: The machine as a person knows it.
    place: str

    def target(self) -> Mapping[str, Any]:
        """What ``release`` needs to find everything again, also in another process. Known before ``launch``."""
        ...

    def launch(self, socket: str, token: str) -> None:
        """Starts the run's agent, or tells the one that is there where the server is now. Raises LaunchError."""
        ...

    def trouble(self) -> str:
        """Why no more word can be expected from the agent, or "" while it may be at work."""
        ...

    def started(self) -> bool:
        """Whether the job directory is there: something of an earlier launch can be found again."""
        ...

    def fetch(self, run_dir: Path) -> list[str]:
        """Brings the model files into ``run_dir/artifacts``; gives warnings, raises nothing of a lost copy."""
        ...


def make(kind: str, where: Any, run_id: str) -> Launcher:
    """The launcher for a run on a backend of this kind."""
    if kind == "local":
        from .local import LocalLauncher

        return LocalLauncher(where, run_id)
    raise LaunchError(f"this version cannot start runs on a backend of type {kind}")


def release(kind: str, where: Any, run_id: str, target: Mapping[str, Any], *, patience_s: float) -> list[str]:
    """Lets go of what a run held on its far side, once; gives lines for the run log.

    Processes get ``patience_s`` to end of themselves. Returning means that the far side confirmed; raises
    OSError or LaunchError when it did not (yet).
    """
    if kind == "local":
        from .local import release_local

        return release_local(where, run_id, patience_s)
    raise LaunchError(f"this version cannot release a backend of type {kind}")
