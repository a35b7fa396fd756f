"""The app: the page and its API as one blueprint, the agent routes as another, and what stands before both."""

from __future__ import annotations

import errno
import logging
import sqlite3
from typing import Any

import flask
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.proxy_fix import ProxyFix

from ..runtime import http_arrival
from ..runtime.agent_routes import make_blueprint as agent_blueprint
from ..runtime.intake import Intake
from ..schema.errors import UserError
from ..worker.protocol import API_PREFIX
from . import metrics
from .api import add_api, answer
from .asking import MAX_BODY, check_size
from .door import Door
from .errors import NotFound, NotSignedIn, Refused
from .eventindex import Indexes
from .pages import Shared, add_pages, html
from .rendering import PREFIX, render, url
from .settings import Settings
from .study import Study

_log = logging.getLogger(__name__)

#: Nothing but what this server gives out itself, and no script or style within a page.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
#: Below these an error is told in JSON, and nobody is sent to a login.
_FOR_PROGRAMS = (f"{PREFIX}/api/", f"{PREFIX}/metrics", "/metrics", API_PREFIX)
#: The disk, not a fault of ours.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE)
_MACHINE = "look at the disk of training/ (room, rights) and at what else has it open; then try again"
#: What may be asked for by anyone.
_OPEN = ("login", "sign_in", "static")


def make_blueprint(study: Study, door: Door, auto: Any) -> flask.Blueprint:
    """The page and its API under /admin/training. Every request but the login's passes the door."""
    routes = flask.Blueprint(
        "potato_training", __name__, url_prefix=PREFIX, static_folder="static", static_url_path="/static"
    )
    shared = Shared(study, door, Indexes(), auto)
    add_pages(routes, shared)
    add_api(routes, study, shared.indexes, auto)

    @routes.get("/metrics")
    def prometheus() -> flask.Response:
        """The same as /metrics, for a host that has none or another."""
        return metrics.answer(study, auto)

    @routes.before_request
    def guard() -> flask.Response | None:
        door.check_host()
        name = (flask.request.endpoint or "").rpartition(".")[2]
        check_size(http_arrival.BODY if name in _OPEN else MAX_BODY)  # no stranger's body is waited for
        if name in ("login", "sign_in", "sign_out") and (elsewhere := door.sign_in_at()):
            return flask.Response("", 303, {"Location": elsewhere})
        if name not in _OPEN:
            flask.g.who = door.admit()
            flask.g.person = door.person()
        return None

    @routes.before_app_request
    def astray() -> flask.Response | None:
        """A host's own app would answer in its way where there is nothing, or send the browser elsewhere."""
        error: Exception | None = flask.request.routing_exception
        if error is None or not f"{flask.request.path}/".startswith(f"{PREFIX}/"):
            return None
        try:
            door.check_host()
            door.admit()
        except Refused as refused:
            error = refused
        return with_headers(told(error))

    @routes.after_request
    def headers(response: flask.Response) -> flask.Response:
        return with_headers(response)

    @routes.errorhandler(Exception)
    def refused(error: Exception) -> flask.Response:
        return told(error)

    return routes


def make_app(study: Study, settings: Settings, auto: Any) -> Any:
    """The standalone WSGI app."""
    door = Door(settings)
    app = flask.Flask("potato_training.server", static_folder=None)
    app.register_blueprint(make_blueprint(study, door, auto))
    app.register_blueprint(agent_blueprint(Intake(study.store, study.places)))
    app.register_error_handler(Exception, told)
    app.after_request(with_headers)

    @app.before_request
    def host() -> None:
        # Agents bring a token of their own and no cookie: to them it does not matter by what name they found us.
        if not flask.request.path.startswith(f"{API_PREFIX}/"):
            door.check_host()

    @app.get("/")
    def root() -> flask.Response:
        return flask.Response("", 302, {"Location": url()})

    @app.get("/metrics")
    def prometheus() -> flask.Response:
        door.admit()
        return metrics.answer(study, auto)

    wsgi: Any = app.wsgi_app
    if settings.prefix:
        wsgi = _Below(wsgi, settings.prefix)
    if settings.behind_proxy:
        wsgi = ProxyFix(wsgi, x_for=1, x_proto=1, x_host=1, x_prefix=1)
    app.wsgi_app = wsgi  # type: ignore[method-assign]
    return app


class _Below:
    """Serves below a prefix, whether the proxy before it has taken the prefix off or not."""

    def __init__(self, app: Any, prefix: str):
        self._app, self._prefix = app, prefix

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if path == self._prefix or path.startswith(self._prefix + "/"):
            environ["PATH_INFO"] = path[len(self._prefix):] or "/"
        environ["SCRIPT_NAME"] = self._prefix
        return self._app(environ, start_response)


def with_headers(response: flask.Response) -> flask.Response:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if (flask.request.endpoint or "").endswith(".static") and response.status_code < 400:
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    else:
        response.headers.setdefault("Cache-Control", "no-store")
    return response


def told(error: Exception) -> flask.Response:
    """Any error as an answer: JSON for the API, a page for a person."""
    if isinstance(error, Refused):
        refused = error
    elif isinstance(error, UserError):
        refused = Refused(error.message, error.hint, status=503)
    elif isinstance(error, sqlite3.Error):
        _log.error("the ledger: %s", error)
        refused = Refused(f"the ledger cannot be used now: {error}", _MACHINE, status=503)
    elif isinstance(error, OSError) and error.errno in _FULL:
        _log.error("%s", error)
        refused = Refused(f"nothing can be written now: {error.strerror}", _MACHINE, status=503)
    elif isinstance(error, HTTPException):
        if error.code in (404, 308):  # or at none that is written in this way
            refused = NotFound("there is nothing at this address")
        else:
            refused = Refused((error.name or "error").lower(), status=error.code or 500)
            methods = getattr(error, "valid_methods", None)  # of a 405
            if methods:
                refused.headers["Allow"] = ", ".join(sorted(methods))
    else:
        _log.error("a request failed here", exc_info=error)
        refused = Refused("internal error", "the server's own output has the details", status=500)
    return _answer(refused)


def _answer(error: Refused) -> flask.Response:
    request = flask.request
    if request.path == f"{PREFIX}/api" or request.path.startswith(_FOR_PROGRAMS):
        response = answer(error.body(), error.status)
    elif isinstance(error, NotSignedIn) and request.method == "GET" and "X-API-Key" not in request.headers:
        following = request.full_path.rstrip("?") if request.path.startswith(PREFIX) else PREFIX
        from urllib.parse import urlencode

        return flask.Response("", 303, {"Location": f"{url('/login')}?{urlencode({'next': following})}"})
    else:
        response = html(render("error.html", error=error, task="", said="", who=None), error.status)
    response.headers.update(error.headers)
    return response
