"""The job message as the agent keeps it: typed, bounded, and refused when it cannot be understood."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

from . import protocol

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST = 400 * 86400.0


class BadJob(Exception):
    """A job message that this agent cannot do; the sentence goes to both sides."""


class Job:
    """One job. Times are seconds. Fields that nobody here knows are ignored."""

    def __init__(self, message: Dict[str, Any]):
        """Raises BadJob."""
        known = message.get("protocol")
        if known != protocol.PROTOCOL:
            raise BadJob(
                "the server speaks protocol %r of the agent protocol, this agent knows %d; update the older of the two"
                % (known, protocol.PROTOCOL)
            )
        self.message = message
        self.run_id = _text(message, "run_id")
        if not is_run_id(self.run_id):
            raise BadJob("run_id is not a plain name")
        self.attempt = int(_number(message, "attempt", 1, 1, 1_000_000))
        self.spec = _object(message, "spec")
        bundle = _object(message, "bundle")
        self.bundle_size = int(_number(bundle, "size", 0, 0, 1 << 50))
        self.bundle_etag = _text(bundle, "etag", "")
        self.bundle_sha256 = _text(bundle, "sha256").lower()
        if not _SHA256.fullmatch(self.bundle_sha256):
            raise BadJob("bundle.sha256 is not a SHA-256 in hex")
        self.env = _texts(message, "env")
        self.python: Optional[str] = _text(message, "python", "") or None
        self.job_script: Optional[str] = _text(message, "job_script", "") or None
        self.grace_s = _number(message, "grace_seconds", protocol.GRACE_SECONDS)
        self.heartbeat_s = _number(message, "heartbeat_s", protocol.HEARTBEAT_S, 0.01, 60)
        self.give_up_s = _number(message, "give_up_s", protocol.HEARTBEAT_TIMEOUT_S, 0.05)
        self.first_event_s = _number(message, "first_event_s", protocol.FIRST_EVENT_S, 0.05)
        self.max_wall_s: Optional[float] = None
        if message.get("max_wall_seconds") is not None:
            self.max_wall_s = _number(message, "max_wall_seconds", 0)
        self.finish_alone = message.get("on_disconnect") == "finish"
        self.scheduler: Optional[Dict[str, Any]] = None
        if message.get("scheduler") is not None:
            self.scheduler = _object(message, "scheduler")
        self.poll_interval_s = _number(message, "poll_interval_s", protocol.POLL_INTERVAL_S, 0.05, 3600)

    def spec_to_write(self) -> Dict[str, Any]:
        """The worker's spec. Its two paths are ours to say, whatever the message has there."""
        return dict(self.spec, bundle_dir=protocol.BUNDLE_DIR, workdir=".")


def is_run_id(value: Any) -> bool:
    """True for a plain name, which is safe as a folder and in a URL."""
    return isinstance(value, str) and bool(_RUN_ID.fullmatch(value))


def _text(where: Dict[str, Any], name: str, default: Optional[str] = None) -> str:
    value = where.get(name, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or "\0" in value:
        raise BadJob("%s is not a text" % name)
    return value


def _object(where: Dict[str, Any], name: str) -> Dict[str, Any]:
    value = where.get(name)
    if not isinstance(value, dict):
        raise BadJob("%s is not an object" % name)
    return value


def _number(where: Dict[str, Any], name: str, default: float, least: float = 0.0, most: float = _LONGEST) -> float:
    value = where.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value == value:
        raise BadJob("%s is not a number" % name)
    return min(max(value, least), most)


def _texts(where: Dict[str, Any], name: str) -> Dict[str, str]:
    value = where.get(name) or {}
    if not isinstance(value, dict):
        raise BadJob("%s is not an object" % name)
    for key, text in value.items():
        if not isinstance(text, str) or "\0" in text or "\0" in key or "=" in key or not key:
            raise BadJob("%s.%s is not a text" % (name, key))
    return value
