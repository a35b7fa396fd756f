"""What agents say, written into the store and the run directory.

The supervisor's private listener and the server's public routes both use this; everything is in
files and the ledger, so any process of the project may take in the next message of a job.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..worker.protocol import CANCELLING, STREAM_WORKER
from . import claims, fold, places, runlog, tokens
from .eventlog import EventLog, Gap, read_events
from .jobs import read_job
from .places import Places
from .protocol_types import BundleFile, Principal, ProtocolError, gap, job_is_over, no_such_job
from .shapes import text
from .store import Run, Store

#: How often at most it is written down which backends' tokens were used: of those known to be in use, and with one
#: that was not used before. Each time costs a sync of the disk.
_SEEN_EVERY_S = 30.0
_NEW_EVERY_S = 1.0


class Intake:
    """Answers the agent routes from the ledger. ``on_word(run_id)`` is called at every word of an agent."""

    def __init__(self, store: Store, where: Places, on_word: Callable[[str], None] = lambda run_id: None):
        self._store = store
        self._places = where
        self._on_word = on_word
        self._logs: dict[tuple[str, str], EventLog] = {}
        self._seen = _Seen(store)

    def authenticate(self, token: str | None) -> Principal | None:
        found = tokens.owner(self._store, token)
        if found is None:
            return None
        if found[0] == tokens.BACKEND:
            self._seen.now(found[1])
        return Principal(*found)

    def claim(self, who: Principal, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The job of a run's own token, or the next one for a backend's. Asking again gives the same job."""
        if who.kind == tokens.BACKEND:
            run = claims.claim(self._store, who.name, _about(body))
            if run is None:
                return None
        else:
            run = self._job(who, who.name)
        self._word(run)
        return read_job(self._places.run_dir(run.run_id))

    def bundle(self, who: Principal, run_id: str) -> BundleFile:
        run = self._job(who, run_id)
        self._word(run)
        job = read_job(self._places.run_dir(run_id))
        return BundleFile(
            path=self._places.run_dir(run_id) / places.BUNDLE, size=job["bundle"]["size"], etag=job["bundle"]["etag"]
        )

    def events(
        self, who: Principal, run_id: str, stream: str, seq: int, events: list[dict[str, Any]]
    ) -> dict[str, Any]:
        run = self._job(who, run_id)
        name = places.EVENTS if stream == STREAM_WORKER else places.AGENT_EVENTS
        run_dir = self._places.run_dir(run_id)
        log = self._logs.setdefault((run_id, stream), EventLog(run_dir / name))
        try:
            # an empty batch is a heartbeat, whatever its number
            wanted, fresh = log.append(seq if events else 0, events)
        except Gap as hole:
            raise gap(hole.wanted) from None
        except ValueError as error:
            raise ProtocolError(400, {"error": f"events: {error}", "field": "events"}) from None
        folded = (run.facts.get("folded") or {}).get(stream, 0)
        if folded < wanted:
            # More than what is new when a kill came between the file and the ledger: the file is the truth.
            pending = fresh if folded == wanted - len(fresh) else read_events(run_dir / name, folded)
            news = fold.fold(stream, pending)
            facts = {**news.facts, "folded": {stream: wanted}}
            self._store.record(run_id, moves=news.moves, facts=facts, warnings=news.warnings)
            runlog.log(run_dir, *news.log)
        self._word(run)
        return {
            "next_seq": wanted,
            "cancel": run.wish == "cancel" or run.state == CANCELLING,
            "stop_and_keep": run.wish == "keep",
        }

    def open_predictions(self, who: Principal, run_id: str) -> PredictionsSink:
        run = self._job(who, run_id)
        self._word(run)
        limit = run.facts.get("max_predictions_mb", 512)
        return PredictionsSink(self._store, run_id, self._places.run_dir(run_id), limit, lambda: self._word(run))

    def result(self, who: Principal, run_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The end of a job. Also taken from a run that is over: its release may be waiting for it."""
        run = self._run(who, run_id)
        if "report" not in run.facts:
            software = body.get("software")
            report = {
                "exit_code": body.get("exit_code"),
                "reason": text(body.get("reason") or "", 200),
                "artifact_uri": text(body.get("artifact_uri") or "", 1000),
            }
            facts: dict[str, Any] = {"report": report}
            if isinstance(software, dict):
                facts["software"] = {text(k, 100): text(v, 100) for k, v in list(software.items())[:200]}
            self._store.record(run_id, facts=facts)
        self._word(run)
        return {"ok": True, "run_id": run_id}

    def _job(self, who: Principal, run_id: str) -> Run:
        run = self._run(who, run_id)
        if run.over:
            raise job_is_over()
        return run

    def _run(self, who: Principal, run_id: str) -> Run:
        run = self._store.get(run_id)
        if run is None:
            raise no_such_job()
        claimed = who.kind == tokens.BACKEND and who.name == run.backend and "agent" in run.facts
        if not claimed and (who.kind, who.name) != (tokens.RUN, run_id):
            raise no_such_job()
        return run

    def _word(self, run: Run) -> None:
        if run.facts.get("backend_type") == claims.KIND:
            self._store.heard(run.run_id)  # the supervisor is another process
        self._on_word(run.run_id)


class _Seen:
    """Which backends' tokens are in use; written down together now and then."""

    def __init__(self, store: Store):
        self._store = store
        self._guard = threading.Lock()
        self._known: set[str] = set()
        self._pending: dict[str, float] = {}
        self._written = -math.inf

    def now(self, name: str) -> None:
        with self._guard:
            self._pending[name] = time.time()
            wait = _SEEN_EVERY_S if name in self._known else _NEW_EVERY_S
            if time.monotonic() - self._written < wait:
                return
            moments, self._pending = self._pending, {}
            self._known.update(moments)
            self._written = time.monotonic()
        self._store.saw_tokens(tokens.BACKEND, moments)


def _about(body: Mapping[str, Any]) -> dict[str, Any]:
    """Who asks, bounded: it goes into the record and onto the page."""
    keys = {"id": "agent_id", "hostname": "hostname", "version": "agent_version", "python": "python"}
    about: dict[str, Any] = {name: text(body.get(key) or "", 200) for name, key in keys.items()}
    gpus = body.get("gpus")
    about["gpus"] = [text(gpu, 200) for gpu in gpus[:16]] if isinstance(gpus, list) else []
    return about


class PredictionsSink:
    """Takes a predictions file as it arrives; it counts only after ``commit`` has checked the digest."""

    def __init__(self, store: Store, run_id: str, run_dir: Path, limit_mb: float, on_bytes: Callable[[], None]):
        self.limit_bytes = int(limit_mb * 1_000_000)
        self._store, self._run_id, self._limit_mb, self._on_bytes = store, run_id, limit_mb, on_bytes
        self._final = run_dir / places.PREDICTIONS
        self._temporary = run_dir / f".{places.PREDICTIONS}.{secrets.token_hex(4)}"
        self._file = os.fdopen(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._rows = 0

    def write(self, data: bytes) -> None:
        """Raises ProtocolError 413 at the byte that is one too many, and notes why the run will fail."""
        self._size += len(data)
        if self._size > self.limit_bytes:
            self.refuse()
        self._sha256.update(data)
        self._rows += data.count(b"\n")
        self._file.write(data)
        self._on_bytes()

    def refuse(self) -> None:
        """Too large: also called by the routes when a Content-Length says so at once."""
        self.abort()
        self._store.note(self._run_id, predictions={"too_large": True})
        raise ProtocolError(413, {"error": f"predictions are larger than {self._limit_mb:g} MB (max_predictions_mb)"})

    def commit(self, sha256: str) -> dict[str, Any]:
        if not secrets.compare_digest(self._sha256.hexdigest(), sha256.lower()):
            self.abort()
            raise ProtocolError(400, {"error": "sha256 is not that of the bytes that arrived", "field": "sha256"})
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self._final)
        saved = {"sha256": self._sha256.hexdigest(), "bytes": self._size, "rows": self._rows}
        self._store.note(self._run_id, predictions=saved)
        return {"ok": True, **saved}

    def abort(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)
