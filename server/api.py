"""The API under /admin/training/api: JSON in, JSON out, the same rules as the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import flask

from .. import __version__
from ..runtime import places, summon
from . import asking, logtail, views
from .asking import json_body, number
from .eventindex import Indexes
from .study import Study

MOST_RUNS = 1000
MOST_EVENTS = 2000


def add_api(routes: flask.Blueprint, study: Study, indexes: Indexes, auto: Any) -> None:
    """Adds the API's routes to the blueprint. ``auto.told()`` says how automatic runs stand."""

    @routes.get("/api/trainers")
    def api_trainers() -> flask.Response:
        return answer({"trainers": views.trainers()})

    @routes.get("/api/schemas")
    def api_schemas() -> flask.Response:
        return answer({"schemas": views.schemas(study.config())})

    @routes.get("/api/backends")
    def api_backends() -> flask.Response:
        return answer({"backends": views.backends(study.config())})

    @routes.get("/api/status")
    def api_status() -> flask.Response:
        return answer(status_of(study, auto))

    @routes.get("/api/runs")
    def api_runs() -> flask.Response:
        limit = number("limit", 50, MOST_RUNS, 1)
        queue = views.queue_of(study.store.open_runs())
        return answer({"runs": [views.summary(run, queue) for run in study.store.runs(limit)]})

    @routes.post("/api/runs")
    def api_start() -> flask.Response:
        """409 for a backend that is not there, 400 naming the field otherwise."""
        try:
            run, position = asking.start_run(study, json_body(), "api")
        except asking.Refused as error:
            error.more["started"] = False
            raise
        return answer({"started": True, "run_id": run.run_id, "queued": position > 0, "position": position})

    @routes.get("/api/runs/<run_id>")
    def api_run(run_id: str) -> flask.Response:
        from .hub import standing

        queue = views.queue_of(study.store.open_runs())
        found = study.run(run_id)
        return answer({**views.record(found, queue), "push": standing(study, found) or None})

    @routes.get("/api/runs/<run_id>/events")
    def api_events(run_id: str) -> flask.Response:
        after, limit = number("after", 0, 10**12), number("limit", MOST_EVENTS, MOST_EVENTS, 1)
        found = study.run(run_id)
        told, following = indexes.of(study.run_dir(found) / places.EVENTS).events(after, limit)
        return answer({"events": told, "next": following, "over": found.over and found.settled})

    @routes.get("/api/runs/<run_id>/log")
    def api_log(run_id: str) -> flask.Response:
        after = number("after", 0, 10**12)
        found = study.run(run_id)
        part = logtail.after(study.run_dir(found) / places.RUN_LOG, after)
        return answer({"text": part.text, "next": part.next, "over": found.over and found.settled})

    @routes.post("/api/runs/<run_id>/cancel")
    def api_cancel(run_id: str) -> flask.Response:
        return answer(wished(asking.wish(study, run_id, "cancel")))

    @routes.post("/api/runs/<run_id>/keep")
    def api_keep(run_id: str) -> flask.Response:
        return answer(wished(asking.wish(study, run_id, "keep")))

    @routes.delete("/api/runs/<run_id>/predictions")
    def api_retract(run_id: str) -> flask.Response:
        return answer({"run_id": run_id, "retracted": asking.retract(study, run_id)})

    @routes.post("/api/runs/<run_id>/push")
    def api_push(run_id: str) -> flask.Response:
        from .hub import push

        study.run(run_id)
        return answer(push(study, run_id, json_body()), 202)

    @routes.post("/api/backends/<name>/check")
    def api_check(name: str) -> flask.Response:
        trainer = json_body(required=False).get("trainer")
        if trainer is not None and not isinstance(trainer, str):
            raise asking.Refused("trainer must be a text", field="trainer")
        return answer(asking.check(study, name, trainer))


def status_of(study: Study, auto: Any) -> dict[str, Any]:
    """What is going on: the runs at work, the queue, what is still to be released, automatic runs."""
    waiting = study.store.open_runs()
    queue = views.queue_of(waiting)
    active = views.active_of(waiting)
    return {
        "version": __version__,
        "running": views.summary(active[0]) if active else None,
        "active": [views.summary(run) for run in active],
        "queue": [views.summary(run, queue) for run in queue],
        "supervisor": summon.supervisor_runs(study.places),
        "releases": [
            {"run_id": r.run_id, "since": views.iso(r.created), "tries": r.tries, "last_error": r.last_error}
            for r in study.held()
        ],
        "auto_retrain": auto.told(),
        "troubles": [text for text in study.troubles.values() if text],
        "config_errors": [f"line {f.line}: {f.path}: {f.message}" for f in study.problems()],
    }


def wished(run: Any) -> dict[str, Any]:
    return {"run_id": run.run_id, "status": run.state, "wish": run.wish}


def answer(body: Mapping[str, Any], status: int = 200) -> flask.Response:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n"
    return flask.Response(text.encode("utf-8", "replace"), status, mimetype="application/json")
