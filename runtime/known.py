"""What is known of a run, from its record and its clocks, as the verdict asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..worker.protocol import STREAM_AGENT
from . import verdict
from .clocks import Clocks
from .store import Run


def facts_of(
    run: Run, job: Mapping[str, Any], watch: Clocks, *, place: str, silent_s: float, unreachable: str, lost: bool
) -> verdict.Facts:
    """``silent_s``: since the agent's last word. ``unreachable``, ``lost``: as the verdict has them."""
    report = run.facts.get("report") or {}
    predictions = run.facts.get("predictions") or {}
    result = run.facts.get("result") or {}
    exit_code = report.get("exit_code")
    return verdict.Facts(
        place=place,
        wish="cancel" if run.wish == "cancel" else None,
        grace_over=watch.grace_over(),
        reported="report" in run.facts,
        agent_reason=str(report.get("reason") or ""),
        exit_code=exit_code if isinstance(exit_code, int) else None,
        result=result.get("status") if result.get("attempt", run.attempt) == run.attempt else None,
        error=_of_this_attempt(run.facts.get("error"), run.attempt),
        predictions=_predictions(predictions, result),
        max_predictions_mb=run.facts.get("max_predictions_mb", 512),
        silent_s=silent_s,
        away=_away(run.facts.get("connection") or {}),
        heartbeat_timeout_s=run.facts.get("heartbeat_timeout_s") or job["give_up_s"],
        wall_over=watch.wall_over(bool(run.facts.get("first_event")), str(report.get("reason") or "")),
        unreachable=unreachable,
        lost=lost,
    )


def _of_this_attempt(error: Mapping[str, Any] | None, attempt: int) -> Mapping[str, Any] | None:
    """A worker's error in an attempt that a scheduler has put behind tells nothing of how the run ended; what the
    agent says, it says at the end."""
    if not error or error.get("stream") == STREAM_AGENT or error.get("attempt", attempt) >= attempt:
        return error
    return None


def _away(connection: Mapping[str, Any]) -> str:
    told = () if connection.get("up", True) else (connection.get("why"), connection.get("hint"))
    return "; ".join(filter(None, told))


def _predictions(saved: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if saved.get("too_large"):
        return verdict.TOO_LARGE
    if saved.get("sha256") and saved["sha256"] == result.get("predictions_sha256"):
        return verdict.SAVED
    return verdict.MISSING
