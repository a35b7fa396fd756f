"""The agent protocol over HTTP: the doors of an ``Intake``, and nothing of what is behind them.

The order at each door is the same: who is it, how large is it, is it JSON, is each field what it
should be; only then is the intake asked. docs/agent-protocol.md is the reference.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

import flask
from werkzeug.exceptions import ClientDisconnected, HTTPException, NotFound
from werkzeug.routing import RequestRedirect

from ..worker.protocol import API_PREFIX, MAX_BATCH_BYTES, MAX_MESSAGE_BYTES
from . import agent_bodies
from .agent_ranges import wanted_range
from .protocol_types import Intake, Principal, ProtocolError, no_such_job

_log = logging.getLogger(__name__)
_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9._~+/=-]{1,512}) *")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CONTENT_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_BLOCK = 1 << 16


def make_blueprint(intake: Intake, *, retry_after_s: float = 10.0) -> flask.Blueprint:
    """The five routes under ``/api/training/v1``. ``retry_after_s`` is what an agent without work is told."""
    routes = flask.Blueprint("agent_protocol", __name__, url_prefix=API_PREFIX)

    def who() -> Principal:
        # the intake is asked also when there is no token, so that both take the same time
        found = intake.authenticate(_token(flask.request.headers.get("Authorization")))
        if found is None:
            raise ProtocolError(401, {"error": "unauthorized"})
        return found

    @routes.post("/claim")
    def claim() -> flask.Response:
        caller = who()
        body, _ = _json_body(MAX_MESSAGE_BYTES)
        job = intake.claim(caller, agent_bodies.check_claim(body))
        if job is None:
            return flask.Response(status=204, headers={"Retry-After": str(max(1, round(retry_after_s)))})
        return _answer(200, job)

    @routes.get("/jobs/<run_id>/bundle")
    def bundle(run_id: str) -> flask.Response:
        found = intake.bundle(who(), _checked(run_id))
        try:
            file = found.path.open("rb")
        except FileNotFoundError:
            raise no_such_job() from None
        size = found.size
        etag = '"{}"'.format(found.etag.strip('"'))
        span = wanted_range(flask.request.headers, size, etag)
        headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "no-store"}
        if span is None:
            file.close()
            headers["Content-Range"] = f"bytes */{size}"
            return _answer(416, {"error": f"the bundle has {size} bytes"}, headers)
        start, stop = span
        headers["Content-Length"] = str(stop - start)
        if (start, stop) != (0, size):
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return flask.Response(
            _blocks(file, start, stop), 206 if "Content-Range" in headers else 200, headers,
            mimetype="application/gzip", direct_passthrough=True,
        )

    @routes.post("/jobs/<run_id>/events")
    def events(run_id: str) -> flask.Response:
        caller = who()
        stream, seq, batch = agent_bodies.check_events(*_json_body(MAX_BATCH_BYTES))
        return _answer(200, intake.events(caller, _checked(run_id), stream, seq, batch))

    @routes.put("/jobs/<run_id>/predictions")
    def predictions(run_id: str) -> flask.Response:
        sink = intake.open_predictions(who(), _checked(run_id))
        try:
            _not_encoded()
            digest = _digest(flask.request.headers.get("Content-Digest"))
            length = flask.request.content_length
            if length is not None and length > sink.limit_bytes:
                sink.refuse()
            size = 0
            while block := _read(min(_BLOCK, sink.limit_bytes + 1 - size)):
                size += len(block)
                sink.write(block)
                if size > sink.limit_bytes:
                    sink.refuse()
            if length is not None and size < length:
                raise agent_bodies.bad("body", f"{size} of {length} bytes arrived")
            return _answer(200, sink.commit(digest))
        except BaseException:
            sink.abort()
            raise

    @routes.post("/jobs/<run_id>/result")
    def result(run_id: str) -> flask.Response:
        caller = who()
        body, _ = _json_body(MAX_MESSAGE_BYTES)
        return _answer(200, intake.result(caller, _checked(run_id), agent_bodies.check_result(body)))

    @routes.before_app_request
    def astray() -> flask.Response | None:
        """A host's own app would answer in HTML where there is nothing, or send the agent elsewhere."""
        error = flask.request.routing_exception
        return _unexpected(error) if error and flask.request.path.startswith(f"{API_PREFIX}/") else None

    @routes.errorhandler(ProtocolError)
    def refused(error: ProtocolError) -> flask.Response:
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        return _answer(error.status, error.body, headers)

    @routes.errorhandler(Exception)
    def broken(error: Exception) -> flask.Response:
        return _unexpected(error)

    return routes


def make_app(intake: Intake, *, retry_after_s: float = 10.0) -> flask.Flask:
    """An app of these routes and nothing else, for a private listener. Every answer is JSON."""
    app = flask.Flask(__name__, static_folder=None)
    app.register_blueprint(make_blueprint(intake, retry_after_s=retry_after_s))
    app.register_error_handler(Exception, _unexpected)
    return app


def _unexpected(error: Exception) -> flask.Response:
    if isinstance(error, RequestRedirect):  # there is something at an address that is nearly this one
        error = NotFound()
    if isinstance(error, HTTPException):
        methods = getattr(error, "valid_methods", None)  # of a 405
        headers = {"Allow": ", ".join(sorted(methods))} if methods else {}
        return _answer(error.code or 500, {"error": (error.name or "error").lower()}, headers)
    _log.error("a request of an agent failed here", exc_info=error)
    return _answer(500, {"error": "internal error"})


def _answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> flask.Response:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n"
    response = flask.Response(text, status, headers, mimetype="application/json")
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def _token(header: str | None) -> str | None:
    found = _BEARER.fullmatch(header or "")
    return found[1] if found else None


def _checked(run_id: str) -> str:
    """A run's id is a word, so that it is no path whatever the intake makes of it."""
    if not _RUN_ID.fullmatch(run_id):
        raise no_such_job()
    return run_id


def _digest(header: str | None) -> str:
    """The hex digest in ``Content-Digest: sha-256=:<base64>:`` (RFC 9530)."""
    found = _CONTENT_DIGEST.search(header or "")
    if not found:
        raise agent_bodies.bad("Content-Digest", "must be sha-256=:<base64>: of the body")
    return base64.b64decode(found[1]).hex()


def _not_encoded() -> None:
    """What is small on the way may be huge when it is unpacked: sizes are those of the bytes as they come."""
    if flask.request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ProtocolError(415, {"error": "Content-Encoding is not taken"})


def _json_body(limit: int) -> tuple[dict[str, Any], int]:
    _not_encoded()
    return agent_bodies.read_json(_read, flask.request.content_length, limit)


def _read(size: int) -> bytes:
    """Some of the request's body, at most ``size`` bytes; b"" at its end."""
    try:
        return flask.request.stream.read(size) or b""
    except TimeoutError:
        raise ProtocolError(408, {"error": "the body did not arrive in time"}) from None
    except (ClientDisconnected, ValueError):
        raise agent_bodies.bad("body", "did not arrive whole") from None


def _blocks(file: Any, start: int, stop: int) -> Iterator[bytes]:
    with file:
        file.seek(start)
        while start < stop:
            block = file.read(min(_BLOCK, stop - start))
            if not block:
                # only an error ends the connection, and so tells the agent that this was not all
                raise RuntimeError("a bundle is shorter than it was")
            start += len(block)
            yield block



