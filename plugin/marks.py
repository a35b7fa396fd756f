"""Which answers on the annotator's page are a model's: what the script beside this asks."""

from __future__ import annotations

import json

import flask

from ..server.study import Study
from . import names
from .prelabels import Prelabels

PATH = "/training/prelabels"


def make_blueprint(prelabels: Prelabels, study: Study) -> flask.Blueprint:
    """One route, for the signed-in annotator, about an item of his that he has not answered yet."""
    routes = flask.Blueprint("potato_training_marks", __name__)

    @routes.get(PATH)
    def marks() -> flask.Response:
        who, item = flask.session.get("username"), flask.request.args.get("instance_id", "")
        if not who:
            return flask.Response("{}", 401, mimetype="application/json")
        state = names.user_state(who)
        open_to_him = state is not None and item in state.get_assigned_instance_ids()
        answered = not open_to_him or bool(state.get_label_annotations(item))
        found = {} if answered else prelabels.of(item, [s.name for s in study.last_config().schemes])
        body = json.dumps(found, ensure_ascii=True)
        return flask.Response(body, mimetype="application/json", headers={"Cache-Control": "no-store"})

    return routes
