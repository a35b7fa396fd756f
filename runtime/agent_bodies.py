"""What agents send, read within bounds and checked for shape. A bad body is a 400 that names the field."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..worker.protocol import MAX_EVENT_BYTES, MAX_EVENTS_PER_BATCH, STREAMS, cut_event
from .protocol_types import ProtocolError

#: A body of JSON that has not arrived whole by then is given up.
BODY_SECONDS = 60.0
_BLOCK = 1 << 16
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_SEQ = 1 << 53
#: Lists and objects within each other: far above any message, far below what a reader's stack takes.
MAX_DEPTH = 32


def bad(field: str, why: str) -> ProtocolError:
    return ProtocolError(400, {"error": f"{field}: {why}", "field": field})


def too_large(what: str) -> ProtocolError:
    return ProtocolError(413, {"error": what})


def read_json(
    read: Callable[[int], bytes], length: int | None, limit: int, *, seconds: float = BODY_SECONDS
) -> tuple[dict[str, Any], int]:
    """The JSON object in a body of at most ``limit`` bytes, and how many it had. ``length``: the
    Content-Length, None when chunked.

    Raises ProtocolError 413 before anything is read when the length says so, else at the byte above.
    """
    if length is not None and length > limit:
        raise too_large(f"a body of {length} bytes; at most {limit} are taken")
    until = time.monotonic() + seconds
    blocks, size = [], 0
    while block := read(min(_BLOCK, limit + 1 - size)):
        blocks.append(block)
        size += len(block)
        if size > limit:
            raise too_large(f"a body of more than {limit} bytes")
        if time.monotonic() > until:
            raise ProtocolError(408, {"error": f"the body did not arrive within {seconds:g} seconds"})
    if length is not None and size < length:
        raise bad("body", f"{size} of {length} bytes arrived")
    data = b"".join(blocks)
    try:
        # NaN is no JSON, but agents in Python send it
        value = json.loads(data, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        raise bad("body", "is not JSON") from None
    if not isinstance(value, dict):
        raise bad("body", "is not a JSON object")
    if b"\\ud" in data or b"\\uD" in data:
        value = _whole_characters(value)
    return value, size


def check_claim(body: Mapping[str, Any]) -> dict[str, Any]:
    """agent_id and hostname must be there; agent_version, python and gpus may."""
    gpus = body.get("gpus", [])
    if not isinstance(gpus, list):
        raise bad("gpus", "must be a list")
    if len(gpus) > 64:
        raise bad("gpus", "has more than 64 entries")
    if _deep(gpus, MAX_DEPTH):
        raise bad("gpus", "is nested too deeply")
    return {
        "agent_id": _name(body, "agent_id", 128, required=True),
        "hostname": _name(body, "hostname", 255, required=True),
        "agent_version": _name(body, "agent_version", 64),
        "python": _name(body, "python", 255),
        "gpus": gpus,
    }


def check_events(body: Mapping[str, Any], size: int) -> tuple[str, int, list[dict[str, Any]]]:
    """(stream, seq, events); an event above 64 KiB is cut and marked, as the agent should have done.

    ``size``: bytes of the whole body; a small one need not be measured event by event.
    """
    stream, seq, events = body.get("stream"), body.get("seq"), body.get("events")
    if not isinstance(stream, str) or stream not in STREAMS:
        raise bad("stream", "must be " + " or ".join(f'"{name}"' for name in STREAMS))
    if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= _MAX_SEQ:
        raise bad("seq", "must be a number from 0 on")
    if not isinstance(events, list):
        raise bad("events", "must be a list")
    batch: list[dict[str, Any]] = []
    if len(events) > MAX_EVENTS_PER_BATCH:
        raise too_large(f"{len(events)} events in a batch; at most {MAX_EVENTS_PER_BATCH} are taken")
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            raise bad(f"events[{number}]", "must be an object")
        kind = event.get("event")
        if not isinstance(kind, str) or not 0 < len(kind) <= 64:
            raise bad(f"events[{number}].event", "must be the kind of event, a text")
        if _deep(event, MAX_DEPTH):
            raise bad(f"events[{number}]", "is nested too deeply")
        batch.append(event if size <= MAX_EVENT_BYTES else cut_event(event))
    return stream, seq, batch


def check_result(body: Mapping[str, Any]) -> dict[str, Any]:
    """exit_code must be there (it may be null); reason, artifact_uri and software may."""
    if "exit_code" not in body:
        raise bad("exit_code", "is missing")
    code = body["exit_code"]
    if code is not None and (isinstance(code, bool) or not isinstance(code, int) or not -255 <= code <= 255):
        raise bad("exit_code", "must be a number from -255 to 255, or null")
    software = body.get("software")
    if software is None:
        software = {}
    if not isinstance(software, dict):
        raise bad("software", "must be an object of names and versions")
    if len(software) > 200:
        raise bad("software", "has more than 200 entries")
    for name, version in software.items():
        if not isinstance(version, str) or len(name) > 128 or len(version) > 128:
            raise bad("software", "names and versions must be texts of at most 128 characters")
    return {
        "exit_code": code,
        "reason": _optional_text(body, "reason", 4096),
        "artifact_uri": _optional_text(body, "artifact_uri", 4096),
        "software": software,
    }


def _name(body: Mapping[str, Any], field: str, longest: int, *, required: bool = False) -> str:
    value = body.get(field)
    if value is None and not required:
        return ""
    if not isinstance(value, str):
        raise bad(field, "must be a text")
    if required and not value.strip():
        raise bad(field, "must not be empty")
    if len(value) > longest:
        raise bad(field, f"is longer than {longest} characters")
    if _CONTROL.search(value):
        raise bad(field, "has a control character")
    return value


def _optional_text(body: Mapping[str, Any], field: str, longest: int) -> str | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise bad(field, "must be a text")
    if len(value) > longest:
        raise bad(field, f"is longer than {longest} characters")
    return value


def _deep(value: Any, levels: int) -> bool:
    """Whether lists and objects lie within each other more than ``levels`` times."""
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deep(item, levels - 1) for item in inner if isinstance(item, (dict, list)))


def _whole_characters(value: Any) -> Any:
    """Half a surrogate pair is JSON, but no text that a file or a database would take."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_characters(item) for item in value]
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(item) for key, item in value.items()}
    return value
