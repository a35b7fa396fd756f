"""What a batch of events says about a run. Pure, and bounded whatever the far side sends.

Events came from another machine: a text is cut and cleared of control characters, a number must be
one, and a state counts only when the far side may name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..worker.protocol import REPORTABLE_STATES, RUNNING, STREAM_WORKER
from . import shapes
from .shapes import number, text


@dataclass
class News:
    """What changes in the record, and what belongs into the run log."""

    #: (attempt, state, step line), in the order told; an empty state or step line says nothing.
    moves: list[tuple[int, str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


def fold(stream: str, events: Iterable[Mapping[str, Any]]) -> News:
    """The news in events of one stream (``worker`` or ``agent``)."""
    news = News()
    for event in events:
        attempt = event.get("attempt")
        attempt = attempt if isinstance(attempt, int) and not isinstance(attempt, bool) and attempt > 0 else 1
        if stream == STREAM_WORKER and "first_event" not in news.facts:
            news.facts["first_event"] = True
        kind = event.get("event")
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        if reader is not None:
            reader(news, event, attempt, stream)
    return news


def _status(news: News, event: Mapping[str, Any], attempt: int, stream: str) -> None:
    state = event.get("state")
    if not isinstance(state, str) or state not in REPORTABLE_STATES:
        state = ""
    step = text(event["step"], 300) if isinstance(event.get("step"), str) else ""
    if state or step:
        news.moves.append((attempt, state, step))
    if step:
        news.log.append(step)
        if stream == STREAM_WORKER:  # what was counted belongs to the step before
            news.facts["progress"] = None
    machine = shapes.machine(event)
    if machine:
        news.facts.setdefault("machine", {}).update(machine)
        if "host" in machine and state == RUNNING:
            news.log.append(_machine_line(machine))


def _machine_line(machine: Mapping[str, Any]) -> str:
    names = ", ".join(text(gpu.get("name", "?")) for gpu in machine.get("gpu") or ())
    return (
        f"worker on {text(machine.get('host'))}, Python {text(machine.get('python', '?'))}, "
        + (f"GPU {names}" if names else f"device {text(machine.get('device', '?'))}")
        + f", {text(machine.get('threads', '?'))} threads"
    )


def _progress(news: News, event: Mapping[str, Any], attempt: int, stream: str) -> None:
    news.facts["progress"] = {
        "phase": text(event.get("phase", ""), 80),
        "current": number(event.get("current")),
        "total": number(event.get("total")),
        "eta_s": number(event.get("eta_s")),
    }


def _log(news: News, event: Mapping[str, Any], attempt: int, stream: str) -> None:
    calls = shapes.calls(event.get("scheduler_calls"))
    if calls is not None:
        news.facts.setdefault("machine", {})["scheduler_calls"] = calls
    message = text(event.get("msg", ""))
    if not message:
        return
    level = text(event.get("level", "info"), 20)
    news.log.append(message if level == "info" else f"{level}: {message}")
    if level == "warning":
        news.warnings.append(message)


def _artifact(news: News, event: Mapping[str, Any], attempt: int, stream: str) -> None:
    news.log.append(f"model file {text(event.get('path', '?'), 300)}: {text(event.get('bytes', '?'), 20)} bytes")


def _result(news: News, event: Mapping[str, Any], attempt: int, stream: str) -> None:
    if stream == STREAM_WORKER:
        news.facts["result"] = {"attempt": attempt, **shapes.result(event)}


def _error(news: News, event: Mapping[str, Any], attempt: int, stream: str) -> None:
    error = {key: text(event[key]) for key in ("code", "message", "install_hint") if event.get(key) is not None}
    news.facts["error"] = {"attempt": attempt, "stream": stream, **error}
    news.log.append("error: " + error.get("message", "?"))


_READERS = {
    "status": _status, "progress": _progress, "log": _log, "artifact": _artifact,
    "result": _result, "error": _error,
}
