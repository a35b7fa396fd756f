"""What the agent routes and the intake behind them say to each other.

The routes (``agent_routes``) know HTTP and nothing of runs; an ``Intake`` knows runs and nothing of
HTTP. Everything that the routes hand over has been checked for shape and size, never for truth:
texts may hold anything that a stranger can type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class Principal:
    """Whoever a token speaks for: a run's own agent (ssh, slurm, local) or an agent backend."""

    kind: Literal["run", "backend"]
    name: str  #: the run's id, or the backend's name


class ProtocolError(Exception):
    """An answer other than success: an HTTP status and the JSON body that goes with it.

    ``body`` has at least ``error``, a short sentence; 400 adds ``field``, 409 adds ``next_seq``.
    """

    def __init__(self, status: int, body: Mapping[str, Any]):
        super().__init__(f"{status}: {body.get('error', '')}")
        self.status = status
        self.body = dict(body)


def no_such_job() -> ProtocolError:
    """The one answer for a run that is not there and for a run that belongs to somebody else."""
    return ProtocolError(404, {"error": "no such job"})


def job_is_over() -> ProtocolError:
    """The answer to everything but ``result`` once a run has ended here."""
    return ProtocolError(410, {"error": "this job is over"})


def gap(next_seq: int) -> ProtocolError:
    """The answer to a batch that begins after the event wanted next."""
    return ProtocolError(409, {"error": f"event {next_seq} is wanted next", "next_seq": next_seq})


@dataclass(frozen=True)
class BundleFile:
    """A run's archive as it lies on disk. ``etag`` names it in every attempt to fetch it (quotes or not)."""

    path: Path
    size: int
    etag: str


class PredictionsSink(Protocol):
    """Where one upload goes. The routes call ``write`` any number of times, then ``commit``, ``refuse``
    or ``abort``. Bytes that arrive here are a sign of life of the agent, like an empty batch of events.
    """

    limit_bytes: int

    def write(self, block: bytes) -> None:
        """Raises ProtocolError 413 at the first byte above the limit, as ``refuse`` does."""
        ...

    def refuse(self) -> None:
        """The upload is larger than the limit (its Content-Length may say so at once): raises 413."""
        ...

    def commit(self, sha256: str) -> Mapping[str, Any]:
        """Keep the upload under its own name; 400 when the hex digest is not that of the bytes."""
        ...

    def abort(self) -> None:
        """Forget the upload; an earlier one that was committed stays."""
        ...


class Intake(Protocol):
    """Runs, as the agent routes see them. Every method may raise ``ProtocolError``."""

    def authenticate(self, token: str | None) -> Principal | None:
        """None for a wrong token and for none at all, after the same work, in constant time."""
        ...

    def claim(self, who: Principal, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The job message, or None: nothing to do now (the routes answer 204).

        ``body``: agent_id, hostname, agent_version, python (texts, the last three may be ""), gpus (a list).
        """
        ...

    def bundle(self, who: Principal, run_id: str) -> BundleFile: ...

    def events(
        self, who: Principal, run_id: str, stream: str, seq: int, events: list[dict[str, Any]]
    ) -> Mapping[str, Any]:
        """``{"next_seq", "cancel", "stop_and_keep"}``. Numbers count from 0 (``protocol.FIRST_SEQ``),
        so ``next_seq`` is also how many events of the stream are here.

        ``seq`` is the number of ``events[0]``; events that are known already are passed over, a batch
        that begins after ``next_seq`` is ``gap(next_seq)``. An empty batch is a heartbeat, whatever its seq.
        """
        ...

    def open_predictions(self, who: Principal, run_id: str) -> PredictionsSink: ...

    def result(self, who: Principal, run_id: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ends the job; repeated: the same answer. Allowed (and welcome) after the job is over.

        ``body``: exit_code (int or None), reason, artifact_uri (texts or None), software (name -> version).
        """
        ...
