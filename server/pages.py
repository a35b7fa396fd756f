"""The page, for people: everything can be read, started and cancelled by plain forms; a script adds the live part."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import flask

from ..runtime import places
from ..runtime.store import Run
from ..schema.errors import UserError
from . import artifacts, asking, downloads, form, runpage, runtable, views
from .door import Door
from .errors import Refused
from .eventindex import Indexes
from .insight import Insights
from .rendering import block, render, url
from .study import Study

#: What a redirect may say; never a text of the request's.
SAID = {
    "started": "The run is in the queue.", "cancel": "The run is being cancelled.",
    "keep": "Training stops at the next batch; the best model so far is kept.",
    "retracted": "The prelabels of this run were taken back.",
    "nothing": "There were no prelabels of this run to take back.", "over": "The run was over already.",
    "out": "You are signed out.",
}
_NEXT = re.compile(r"/admin/training(?:[/?][A-Za-z0-9/_.=&?%+-]*)?\Z")


class Shared:
    """What every page needs."""

    def __init__(self, study: Study, door: Door, indexes: Indexes, auto: Any):
        self.study, self.door, self.indexes, self.auto = study, door, indexes, auto
        self.insights = Insights()


def add_pages(routes: flask.Blueprint, shared: Shared) -> None:
    study = shared.study

    @routes.get("")
    @routes.get("/")
    def page() -> flask.Response:
        return html(_page(shared, {}, {}))

    @routes.get("/live")
    def live() -> flask.Response:
        return fragments(_regions(shared))

    @routes.post("/start")
    def start() -> flask.Response:
        sent = flask.request.form
        asked, wrong = _asked(sent)
        if not wrong:
            try:
                run, _ = asking.start_run(study, asked, "manual")
                return back("", said="started", run=run.run_id)
            except Refused as error:
                wrong = {error.field or "form": " ".join(filter(None, (error.message, error.hint)))}
            except UserError as error:
                wrong = {"form": " ".join(filter(None, (error.message.splitlines()[0], error.hint)))}
        return html(_page(shared, sent.to_dict(), wrong), 400)

    @routes.post("/check")
    def check() -> flask.Response:
        sent = flask.request.form
        try:
            report = asking.check(study, sent.get("backend", ""), sent.get("trainer"))
        except UserError as error:
            return html(_page(shared, sent.to_dict(), {"form": error.message}), 400)
        return html(_page(shared, sent.to_dict(), {}, report))

    @routes.get("/runs/<run_id>")
    def run_page(run_id: str) -> flask.Response:
        run = study.run(run_id)
        word = flask.request.args.get("q", "")[:200]
        return html(render("run.html", **runpage.values(shared, run, word), **_around(shared)))

    @routes.get("/runs/<run_id>/live")
    def run_live(run_id: str) -> flask.Response:
        run = study.run(run_id)
        values = runpage.live_values(shared, run)
        told = {name: block("run_parts.html", name, **values) for name in ("head", "curves", "push")}
        return fragments(told, over=not values["goes_on"], title=runpage.title(run))

    @routes.post("/runs/<run_id>/cancel")
    def cancel(run_id: str) -> flask.Response:
        return wished(run_id, "cancel")

    @routes.post("/runs/<run_id>/keep")
    def keep(run_id: str) -> flask.Response:
        return wished(run_id, "keep")

    def wished(run_id: str, wish: str) -> flask.Response:
        said = wish
        try:
            asking.wish(study, run_id, wish)
        except asking.Conflict:
            said = "over"
        to = "" if flask.request.form.get("back") == "list" else f"/runs/{run_id}"
        return back(to, said=said, run=run_id)

    @routes.post("/runs/<run_id>/retract")
    def retract(run_id: str) -> flask.Response:
        removed = asking.retract(study, run_id)
        return back(f"/runs/{run_id}", said="retracted" if removed else "nothing")

    @routes.post("/runs/<run_id>/push")
    def push(run_id: str) -> flask.Response:
        from .hub import push

        sent = flask.request.form
        asked = {"repo_id": sent.get("repo_id", "").strip(), "private": sent.get("private") == "yes",
                 "token": sent.get("token", "").strip() or None}
        push(study, run_id, asked)
        return back(f"/runs/{run_id}#files-title")

    @routes.get("/runs/<run_id>/log")
    def log(run_id: str) -> flask.Response:
        return text_file(study.run(run_id), places.RUN_LOG)

    @routes.get("/runs/<run_id>/agent.log")
    def agent_log(run_id: str) -> flask.Response:
        return text_file(study.run(run_id), places.AGENT_LOG)

    def text_file(run: Run, name: str) -> flask.Response:
        return downloads.text(artifacts.regular(study.run_dir(run) / name, "this run has no such log"))

    @routes.get("/runs/<run_id>/predictions.jsonl")
    def predictions(run_id: str) -> flask.Response:
        run = study.run(run_id)
        file = artifacts.regular(study.run_dir(run) / places.PREDICTIONS, "this run has no predictions")
        return downloads.file(file, f"{run.run_id}-predictions.jsonl")

    @routes.get("/runs/<run_id>/artifacts.tar")
    def all_files(run_id: str) -> flask.Response:
        run = study.run(run_id)
        tar = artifacts.Tar(study.run_dir(run), run.run_id)
        return downloads.whole(tar, tar.size, f"{run.run_id}.tar")

    @routes.get("/runs/<run_id>/artifacts/<path:name>")
    def one_file(run_id: str, name: str) -> flask.Response:
        file = artifacts.opened(study.run_dir(study.run(run_id)), name)
        return downloads.file(file, name.rpartition("/")[2])

    @routes.get("/compare")
    def compare() -> flask.Response:
        chosen = flask.request.args.getlist("run")
        if len(set(chosen)) != 2:
            raise Refused("choose two runs to compare", "tick two boxes in the table of runs")
        runs = [study.run(run_id) for run_id in chosen]
        return html(render("compare.html", **runpage.comparison(shared, *runs), **_around(shared)))

    @routes.get("/login")
    def login() -> flask.Response:
        return html(_login(shared, flask.request.args.get("next", "")))

    @routes.post("/login")
    def sign_in() -> flask.Response:
        door, sent = shared.door, flask.request.form
        door.check_origin(None)
        answer = back("", to=_checked_next(sent.get("next", "")))
        if door.sign_in(sent.get("key", ""), answer):
            return answer
        return html(_login(shared, sent.get("next", ""), "That is not the key."), 403)

    @routes.post("/logout")
    def sign_out() -> flask.Response:
        answer = back("/login", said="out")
        shared.door.sign_out(answer)
        return answer


# --- the main page -------------------------------------------------------------------------------------


def _page(shared: Shared, sent: dict[str, str], wrong: dict[str, str], report: Any = None) -> str:
    study = shared.study
    checked = study.checked()
    config = checked.config
    wanted = runtable.wanted()
    start: dict[str, Any] = {"config": None}
    if config is not None:
        trainers = [t for t in views.trainers() if "params_schema" in t]
        again = study.store.get(flask.request.args.get("again", "")) if not sent else None
        if again is not None:
            sent = _sent_of(again, trainers)
        start = {
            "config": config, "trainers": trainers, "schemas": views.schemas(config),
            "fields": {t["name"]: form.fields(t["params_schema"]) for t in trainers},
            "backends": views.backends(config), "chosen": _chosen(config, sent, trainers, again),
            "again": again.run_id if again else "",
        }
    return render(
        "page.html", **_around(shared), **start, sent=sent, wrong=wrong, report=report, field_name=form.field_name,
        problems=checked.errors, regions=_regions(shared), wanted=wanted, query=runtable.query(wanted),
        has_runs=bool(study.store.runs(1)),
    )


def _chosen(config: Any, sent: dict[str, str], trainers: list[dict[str, Any]], again: Run | None) -> dict[str, Any]:
    kinds = {s.name: s.kind for s in config.schemes}
    trainer = sent.get("trainer") or "sklearn-text"
    can = next((t["kinds"] for t in trainers if t["name"] == trainer), ())
    if again is not None:
        schemas = list(again.schemas)
    else:
        schemas = flask.request.form.getlist("schemas") if sent else [
            name for name in config.training["writeback"]["schemas"] if kinds.get(name) in can
        ] or [name for name, kind in kinds.items() if kind in can]
    return {"trainer": trainer, "backend": sent.get("backend") or config.training["backend"], "schemas": schemas}


def _sent_of(run: Run, trainers: list[dict[str, Any]]) -> dict[str, str]:
    """The start form as it was filled in for an earlier run."""
    schema: dict[str, Any] = next((t["params_schema"] for t in trainers if t["name"] == run.trainer), {})
    return {"trainer": run.trainer, "backend": run.backend, **form.sent_of(run.trainer, schema, run.params)}


def _asked(sent: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """(the request as the API takes it, what is wrong by form field)."""
    from ..runtime.request import chosen_trainer

    trainer = sent.get("trainer", "")
    try:
        info = chosen_trainer(trainer or None)
    except UserError as error:
        return {}, {"trainer": f"{error.message}; {error.hint}"}
    params, wrong = form.read(info.name, info.params_schema, sent)
    schemas = sent.getlist("schemas")
    if not schemas:
        wrong["schemas"] = "choose at least one"
    return {"trainer": info.name, "backend": sent.get("backend") or None, "schemas": schemas, "params": params}, wrong


def _regions(shared: Shared) -> Mapping[str, str]:
    """The parts of the page that change by themselves, as HTML."""
    store, wanted = shared.study.store, runtable.wanted()
    waiting = store.open_runs()
    active, queue = views.active_of(waiting), views.queue_of(waiting)
    found, more = runtable.shown(store, wanted)
    shown = [views.summary(run, queue) | {"run": run} for run in found]
    at_work = [runpage.live_values(shared, run) for run in active]
    return {
        "now": block("parts.html", "now", active=at_work, queue=queue, releases=shared.study.held(),
                     trouble=shared.study.troubles.get("supervisor") if waiting else ""),
        "auto": block("parts.html", "auto", auto=shared.auto.told()),
        "runs": block("parts.html", "runs", runs=shown, more=more, wanted=wanted),
    }


def _around(shared: Shared) -> dict[str, Any]:
    """What stands on every page: title, message, whether one can sign out."""
    config = shared.study.checked().config
    said = flask.request.args.get("said", "")
    return {
        "task": (config.task_name if config else "") or shared.study.places.task_dir.name,
        "said": SAID.get(said, ""), "who": flask.g.get("who"),
    }


def _login(shared: Shared, following: str, wrong: str = "") -> str:
    return render("login.html", **_around(shared), following=_checked_next(following), wrong=wrong)


def _checked_next(text: str) -> str:
    """Where to go after signing in: an address of ours, or the page."""
    return text if _NEXT.match(text) and "//" not in text else "/admin/training"


# --- answers ---------------------------------------------------------------------------------------------


def html(text: str, status: int = 200) -> flask.Response:
    return flask.Response(text, status, mimetype="text/html")


def back(path: str, *, to: str = "", said: str = "", run: str = "") -> flask.Response:
    """A redirect after a form: reloading the page sends nothing twice."""
    from urllib.parse import urlencode

    where = flask.request.script_root + to if to else url(path)
    query = urlencode({k: v for k, v in (("said", said), ("run", run)) if v})
    return flask.Response("", 303, {"Location": where + (f"?{query}" if query else "")})


def fragments(regions: Mapping[str, str], **more: Any) -> flask.Response:
    """Regions as JSON; 304 when the browser has the same already."""
    text = json.dumps({"regions": regions, **more}, ensure_ascii=False)
    etag = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
    if flask.request.if_none_match.contains(etag):
        return flask.Response(status=304, headers={"ETag": f'"{etag}"'})
    answer = flask.Response(text.encode("utf-8", "replace"), mimetype="application/json")
    answer.set_etag(etag)
    return answer
