"""Telling others that a run has ended: a POST to ``model_training.notify.webhook``.

A message is a file in ``training/deliveries/`` from the moment that its run ends until it is delivered or
given up, so a supervisor that is killed forgets none. It may arrive twice (a kill between the answer and
the note of it): its ``id`` is the same then.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..worker.jobdir import make_private_dir, write_private
from . import runlog
from .bounds import bounds
from .places import Places
from .store import Run, Store

_TRIES = 6
_TIMEOUT_S = 15
#: Answers that may be better next time; any other 4xx will not.
_AGAIN = (408, 425, 429)


def owe(store: Store, where: Places, run: Run, config: Any) -> None:
    """Writes down that a run's end is to be told, when the config wants it. Doing it again changes nothing."""
    url = (config.training.get("notify") or {}).get("webhook")
    if not url or "notify" in run.facts:
        return
    folder = _folder(where)
    make_private_dir(str(folder))
    message = {"url": url, "body": body(run, config.task_name or where.task_dir.name), "tries": 0, "after": 0.0}
    write_private(str(folder / f"{run.run_id}.json"), json.dumps(message, ensure_ascii=False))
    store.note(run.run_id, notify={"state": "owed", "to": _host(url), "words": f"to be sent to {_host(url)}"})


def body(run: Run, task: str) -> dict[str, Any]:
    """What is sent. ``text`` says it in a sentence, which is what chat programs show."""
    scores = {}
    for schema, splits in ((run.facts.get("result") or {}).get("metrics") or {}).items():
        splits = splits if isinstance(splits, dict) else {}
        found = next((splits[s] for s in ("test", "val") if (splits.get(s) or {}).get("macro_f1") is not None), None)
        if found:
            scores[schema] = {name: found.get(name) for name in ("n", "accuracy", "macro_f1")}
    written = run.facts.get("writeback") or {}
    told = ", ".join(f"{schema} macro-F1 {m['macro_f1']:.3f}" for schema, m in scores.items())
    text = f"{task}: run {run.run_id} ({run.trainer} on {run.backend}) {run.state}"
    text += f": {told}" if told else f": {run.reason}" if run.reason else ""
    return {
        "event": "run.ended", "id": f"{run.run_id}.{run.state}", "task": task, "run_id": run.run_id,
        "status": run.state, "reason": run.reason, "trainer": run.trainer, "schemas": list(run.schemas),
        "backend": run.backend, "trigger": run.trigger, "started_by": run.started_by, "created": run.created,
        "ended": run.ended, "held_out": scores, "published": written.get("published"), "text": text,
    }


class Deliveries:
    """Sends what is owed, a thread a message, with growing pauses between the tries."""

    def __init__(self, store: Store, where: Places):
        self._store, self._places = store, where
        self._sending: dict[str, threading.Thread] = {}

    def owed(self) -> list[Path]:
        folder = _folder(self._places)
        return sorted(folder.glob("*.json")) if folder.is_dir() else []

    def tick(self) -> None:
        for path in self.owed():
            thread = self._sending.get(path.stem)
            if thread is not None and thread.is_alive():
                continue
            try:
                message = json.loads(path.read_text("utf-8"))
            except (OSError, ValueError):
                path.unlink(missing_ok=True)
                continue
            # a clock that was set back must not hold a message for ever
            if not 0 < message["after"] - time.time() <= bounds().notify_most_s:
                self._sending[path.stem] = threading.Thread(target=self._try, args=(path, message), daemon=True)
                self._sending[path.stem].start()

    def _try(self, path: Path, message: dict[str, Any]) -> None:
        trouble, final = send(message["url"], message["body"])
        message["tries"] += 1
        host = _host(message["url"])
        if not trouble:
            self._end(path, "delivered", f"delivered to {host} at try {message['tries']}", message)
        elif final or message["tries"] >= _TRIES:
            self._end(path, "failed", f"not delivered to {host} after {message['tries']} tries: {trouble}", message)
        else:
            wait = min(bounds().notify_first_s * 4 ** (message["tries"] - 1), bounds().notify_most_s)
            message["after"] = time.time() + wait
            write_private(str(path), json.dumps(message, ensure_ascii=False))
            words = f"not delivered to {host} yet: {trouble}"
            self._store.note(path.stem, notify={"state": "owed", "tries": message["tries"], "words": words})

    def _end(self, path: Path, state: str, words: str, message: Mapping[str, Any]) -> None:
        told = {"state": state, "tries": message["tries"], "at": time.time(), "words": words}
        self._store.note(path.stem, notify=told)
        runlog.log(self._places.run_dir(path.stem), f"notification {words}")
        path.unlink(missing_ok=True)


def send(url: str, message: Mapping[str, Any]) -> tuple[str, bool]:
    """One try: ("", False) when it was taken, else (why not, whether trying again is in vain)."""
    import urllib.error
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    request = urllib.request.Request(  # noqa: S310 the config's pattern takes http and https only
        url, json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"),
        {"Content-Type": "application/json; charset=utf-8", "User-Agent": "potato-training"}, method="POST",
    )
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=_TIMEOUT_S) as answer:
            answer.read(64 * 1024)
        return "", False
    except urllib.error.HTTPError as error:
        return f"it answered {error.code}", error.code < 500 and error.code not in _AGAIN
    except Exception as error:  # the address may be anything, and so may what is there
        return runlog.one_line(f"{type(error).__name__}: {error}").replace(url, _host(url))[:200], False


def _host(url: str) -> str:
    """The part of the address that may be shown: paths of webhooks are secrets, and so may be a user's name."""
    return urlsplit(url).hostname or "?"


def _folder(where: Places) -> Path:
    return where.root / "deliveries"
