"""What a request says, checked: bodies, numbers in the query, and a run that is asked for."""

from __future__ import annotations

import json
import re
from typing import Any

import flask
from werkzeug.exceptions import HTTPException

from ..runtime import life, request
from ..runtime.store import Run
from ..runtime.submit import submit
from ..schema.errors import UserError
from ..schema.near import nearest
from ..worker.protocol import QUEUED
from .errors import Conflict, Refused
from .study import Study

#: Far above any list of parameters.
MAX_BODY = 256 * 1024
_RUN_KEYS = ("trainer", "schemas", "backend", "params")
_NUMBER = re.compile(r"[0-9]{1,12}\Z")


def check_size(most: int = MAX_BODY) -> None:
    """Refuses a body that is too large before a byte of it is read, whoever sends it. One whose size is not told
    is read by ``json_body`` alone, which counts."""
    length = flask.request.content_length
    if length is not None and length > most:
        raise Refused(f"the body is larger than {most // 1024} kB", field="body", status=413, **_nothing_started())
    if length is None and flask.request.headers.get("Transfer-Encoding") and not flask.request.is_json:
        raise Refused(
            "the size of the body must be told", "Content-Length", field="body", status=411, **_nothing_started()
        )


def _nothing_started() -> dict[str, Any]:
    """What the answer to a refused start has besides, wherever it is refused."""
    return {"started": False} if (flask.request.endpoint or "").endswith(".api_start") else {}


def json_body(*, required: bool = True) -> dict[str, Any]:
    """The body as a JSON object. Refused for anything else, naming the field ``body``."""
    try:
        data = flask.request.stream.read(MAX_BODY + 1)
    except (HTTPException, ValueError, OSError):
        raise Refused("the body did not arrive whole", field="body") from None
    if len(data) > MAX_BODY:
        raise Refused(f"the body is larger than {MAX_BODY // 1024} kB", field="body", status=413)
    if not data.strip() and not required:
        return {}
    if data.strip() and flask.request.mimetype not in ("application/json", "text/json"):
        raise Refused("the body must be JSON", "Content-Type: application/json", field="body", status=415)
    try:
        body = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused("the body is not JSON", field="body") from None
    if not isinstance(body, dict):
        raise Refused("the body must be a JSON object", field="body")
    return body


def _no_number(word: str) -> Any:
    raise ValueError(word)


def number(name: str, default: int, most: int, least: int = 0) -> int:
    """A whole number of the query. Refused, naming it, when it is none or out of bounds."""
    text = flask.request.args.get(name, "")
    if text == "":
        return default
    if not _NUMBER.match(text) or not least <= int(text) <= most:
        raise Refused(f"{name} must be a whole number from {least} to {most}", field=name)
    return int(text)


def start_run(study: Study, asked: dict[str, Any], trigger: str) -> tuple[Run, int]:
    """Puts a run into the queue and summons the supervisor; (the run, how many are before it).

    Refused naming the field; Conflict for a backend that the config does not have, whatever else is wrong.
    """
    for key in asked:
        if key not in _RUN_KEYS:
            near = nearest(key, _RUN_KEYS)
            hint = f"did you mean {near!r}?" if near else "known are: " + ", ".join(_RUN_KEYS)
            raise Refused(f"unknown field {key[:100]!r}", hint, field=key[:100])
    trainer, backend = _text(asked, "trainer"), _text(asked, "backend")
    schemas, params = _names(asked), asked.get("params")
    if params is not None and not isinstance(params, dict):
        raise Refused("params must be an object", field="params")
    config = study.config()
    if backend and backend not in config.backends:
        known = ", ".join(config.backends)
        raise Conflict(f"there is no backend {backend!r}", f"the backends are: {known}", field="backend")
    try:
        run = submit(
            config, trainer=trainer, schemas=schemas, backend=backend, params=params or {}, trigger=trigger,
            started_by=flask.g.get("person", ""),
        )
    except request.RequestError as error:
        raise Refused(error.message, error.hint, field=error.field) from error
    except UserError as error:
        raise Refused(error.message, error.hint) from error
    study.summon()
    return run, ahead(study, run)


def ahead(study: Study, run: Run) -> int:
    """How many runs must end before this one starts. A job that waits in a scheduler's queue holds nobody back."""
    before = [other for other in study.store.open_runs() if other.place < run.place]
    return sum(other.state == QUEUED or other.state in life.EXECUTING for other in before)


def wish(study: Study, run_id: str, wish: str) -> Run:
    """Leaves ``cancel`` or ``keep``. NotFound for no such run, Conflict for one that is over."""
    run = study.run(run_id)
    if study.store.wish(run_id, wish) == "over":
        run = study.run(run_id)
        raise Conflict(f"run {run_id} is over: {run.state}", run_status=run.state)
    study.summon()
    return study.run(run_id)


def retract(study: Study, run_id: str) -> int:
    """Takes the run's prelabels back; how many there were."""
    import time

    from ..project.writeback import retract
    from ..runtime import runlog

    run = study.run(run_id)
    if not (run.over and run.settled):
        raise Conflict(f"run {run_id} has not ended yet: it has published nothing")
    removed = retract(study.places.prelabels, run_id)
    if removed:
        study.store.note(run_id, retracted={"at": time.time(), "rows": removed})
        runlog.log(study.run_dir(run), f"retracted {removed} prelabels")
    return removed


def check(study: Study, name: str, trainer: str | None) -> dict[str, Any]:
    """The check command's report. NotFound for a backend that is not in the config."""
    from ..runtime.checks import check
    from ..schema.errors import UsageError
    from .errors import NotFound

    config = study.config()
    if name not in config.backends:
        raise NotFound(f"there is no backend {name!r}", f"the backends are: {', '.join(config.backends)}")
    try:
        return check(config, name, trainer or None).to_json()
    except UsageError as error:
        if trainer and "trainer" in error.message:
            raise Refused(error.message, error.hint, field="trainer") from error
        kind = config.backends[name].type
        return {"backend": name, "type": kind, "ok": False, "lines": [error.message], "problems": [error.message]}


def _text(asked: dict[str, Any], name: str) -> str | None:
    value = asked.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise Refused(f"{name} must be a text", field=name)
    return value


def _names(asked: dict[str, Any]) -> list[str]:
    value = asked.get("schemas")
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Refused("schemas must be a list of names", field="schemas")
    return value
