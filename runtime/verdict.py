"""How a run ended: one pure function of what is known.

The rules stand in the order in which they are asked; the first that applies decides. docs/verdict.md
is the same table for people. Whatever is missing counts against success: a run succeeds on its
worker's exit code, its result and its saved predictions together, and on nothing less.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..worker.protocol import (
    CANCELLED,
    EXIT_BAD_SPEC,
    EXIT_CANCELLED,
    EXIT_MISSING_DEPENDENCY,
    EXIT_OK,
    EXIT_OUT_OF_MEMORY,
    FAILED,
    SUCCEEDED,
)

SAVED = "saved"
MISSING = "missing"
TOO_LARGE = "too large"


@dataclass(frozen=True)
class Facts:
    """What is known about one attempt of a run. Every default is "we do not know"."""

    #: The place's name as a person knows it, e.g. ``this machine`` or ``gpu-server``.
    place: str = "this machine"
    #: ``cancel`` when somebody asked for it.
    wish: str | None = None
    #: The grace of that cancel is over.
    grace_over: bool = False
    #: The agent's result message arrived: nothing more will come of this attempt.
    reported: bool = False
    #: Why the agent ended the job, in one word of its own: ``finished``, ``max-wall``, ``cancelled``,
    #: ``gave-up``, ``worker-lost`` ...
    agent_reason: str = ""
    #: The worker's exit code, 128 + n when signal n killed it.
    exit_code: int | None = None
    #: The status in the worker's result event.
    result: str | None = None
    #: The worker's (or agent's) error event: ``code``, ``message``, ``install_hint``.
    error: Mapping[str, Any] | None = None
    #: ``saved``, ``missing`` or ``too large``.
    predictions: str = MISSING
    max_predictions_mb: float = 512
    #: Seconds since the last word from the agent, by our own monotonic clock, and what is allowed.
    silent_s: float = 0
    #: Why the connection to its machine is away, and what to do; "" while it stands.
    away: str = ""
    heartbeat_timeout_s: float = 120
    #: model_training.max_wall_seconds when it has passed, the agent's own stop included.
    wall_over: float | None = None
    #: No agent could be started or started again; why.
    unreachable: str = ""
    #: Nothing of the run could be found again after a restart of ours.
    lost: bool = False


@dataclass(frozen=True)
class Verdict:
    status: str
    reason: str = ""
    hint: str = ""


def judge(facts: Facts) -> Verdict | None:
    """The run's end, or None while it is not over. Never raises, and never waits."""
    for rule in RULES:
        verdict = rule(facts)
        if verdict is not None:
            return verdict
    return None


def _cancelled(f: Facts) -> Verdict | None:
    if f.wish == "cancel" and (f.reported or f.grace_over or f.unreachable or f.lost):
        return Verdict(CANCELLED, "cancelled")
    return None


def _wall(f: Facts) -> Verdict | None:
    if f.wall_over is None:
        return None
    return _failed(
        f"The run was stopped after {f.wall_over:g} seconds (model_training.max_wall_seconds)",
        "raise model_training.max_wall_seconds, or train on fewer items",
    )


def _lost(f: Facts) -> Verdict | None:
    return _failed("The server stopped during this run", "start it again") if f.lost else None


def _unreachable(f: Facts) -> Verdict | None:
    return _failed(f.unreachable, "agent.log has its last output") if f.unreachable else None


def _silent(f: Facts) -> Verdict | None:
    if f.reported or f.silent_s <= f.heartbeat_timeout_s:
        return None
    return _failed(
        f"No word from the agent on {f.place} for {f.heartbeat_timeout_s:g} seconds",
        f.away or "agent.log has its last output",
    )


def _error_told(f: Facts) -> Verdict | None:
    """The worker said itself what went wrong; its words are better than any guess of ours."""
    if not f.reported or f.error is None or _good(f):
        return None
    if f.exit_code == EXIT_CANCELLED and f.error.get("code") in (None, "cancelled"):
        return None
    return _failed(str(f.error.get("message") or "the trainer failed"), str(f.error.get("install_hint") or ""))


def _too_large(f: Facts) -> Verdict | None:
    if f.reported and f.predictions == TOO_LARGE:
        return _failed(
            f"The predictions are larger than {f.max_predictions_mb:g} MB (model_training.max_predictions_mb)",
            "raise max_predictions_mb, or predict fewer items (writeback.include_unlabeled)",
        )
    return None


def _gave_up(f: Facts) -> Verdict | None:
    if f.reported and f.agent_reason == "gave-up" and not _good(f):
        return _failed(
            f"The agent on {f.place} had no answer from this server for too long and stopped its worker",
            "agent.log says since when; start the run again",
        )
    return None


def _no_exit_code(f: Facts) -> Verdict | None:
    if f.reported and f.exit_code is None:
        return _failed(
            f"The worker on {f.place} is gone and left no exit code",
            "the machine may have restarted, or somebody killed the worker; the run log has its last output",
        )
    return None


def _success(f: Facts) -> Verdict | None:
    return Verdict(SUCCEEDED) if f.reported and _good(f) else None


def _no_result(f: Facts) -> Verdict | None:
    if f.reported and f.exit_code == EXIT_OK and f.result != SUCCEEDED:
        return _failed("The worker ended with exit code 0 but reported no result", _SEE_LOG)
    return None


def _no_predictions(f: Facts) -> Verdict | None:
    if f.reported and f.exit_code == EXIT_OK:
        return _failed("The worker finished but its predictions did not arrive", _SEE_LOG)
    return None


def _stopped(f: Facts) -> Verdict | None:
    if f.reported and f.exit_code == EXIT_CANCELLED:
        return _failed(f"The worker on {f.place} was stopped from outside", "start the run again")
    return None


def _memory(f: Facts) -> Verdict | None:
    if f.reported and f.exit_code in (EXIT_OUT_OF_MEMORY, 128 + signal.SIGKILL):
        return _failed(
            f"The worker on {f.place} was killed: most likely the host ran out of memory",
            "fewer items, a machine with more memory, or where the trainer has them a smaller batch_size or max_length",
        )
    return None


def _signal(f: Facts) -> Verdict | None:
    if f.reported and f.exit_code is not None and f.exit_code > 128:
        return _failed(f"The worker on {f.place} was killed by signal {f.exit_code - 128}", _SEE_LOG)
    return None


def _code(f: Facts) -> Verdict | None:
    if not f.reported:
        return None
    words = {EXIT_BAD_SPEC: "could not read its bundle or spec", EXIT_MISSING_DEPENDENCY: "lacks a package"}
    told = words.get(f.exit_code or 0, "failed")
    return _failed(f"The worker on {f.place} {told} (exit code {f.exit_code})", _SEE_LOG)


_SEE_LOG = "the run log has the end of its stderr"

#: In the order in which they are asked.
RULES: tuple[Callable[[Facts], Verdict | None], ...] = (
    _cancelled, _wall, _lost, _unreachable, _silent, _too_large, _error_told, _gave_up, _no_exit_code, _success,
    _no_result, _no_predictions, _stopped, _memory, _signal, _code,
)


def _good(f: Facts) -> bool:
    return f.exit_code == EXIT_OK and f.result == SUCCEEDED and f.predictions == SAVED


def _failed(reason: str, hint: str = "") -> Verdict:
    return Verdict(FAILED, reason, hint)
