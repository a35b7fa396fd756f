"""Whatever an agent or a worker says, its record can be looked at: on every page, by the API, in the terminal."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import tarfile
from io import BytesIO

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from potato_training.cli.scores import scores
from potato_training.runtime import fold
from potato_training.runtime.eventlog import EventLog
from potato_training.server.app import make_app
from potato_training.server.card import card
from potato_training.server.settings import settings as server_settings
from potato_training.server.study import Study

KEY = "the key of the tests"
NUMBERS = itertools.count(1)


class Off:
    def told(self):
        return {"words": "off"}


class Looker:
    """A project with an app in this process, and a way to look at a run in every form."""

    def __init__(self, config):
        self.study = Study(config)
        given = server_settings(self.study.config(), self.study.places.root, host="127.0.0.1")
        self.app = make_app(self.study, given, Off())
        self.first = self.run()

    def run(self):
        name = f"r{next(NUMBERS)}"
        self.study.store.insert(name, trainer="sklearn-text", schemas=("sentiment",), params={}, backend="local",
                                config="config.yaml", trigger="api", started_by="me")
        self.study.places.run_dir(name).mkdir()
        self.study.store.advance(name, "running", attempt=1)
        return name

    def get(self, path, **headers):
        sent = {"X-API-Key": KEY, "Host": "localhost", **{name.replace("_", "-"): x for name, x in headers.items()}}
        return self.app.test_client().get(f"/admin/training{path}", headers=sent)

    def look(self, run):
        paths = ("", "/live", f"/runs/{run}", f"/runs/{run}/live", f"/compare?run={run}&run={self.first}",
                 f"/api/runs/{run}", "/api/runs", "/api/status", f"/api/runs/{run}/events", "/metrics")
        for path in paths:
            answer = self.get(path)
            assert answer.status_code == 200, path
            if path.startswith("/api"):
                json.loads(answer.data, parse_constant=pytest.fail)
        found = self.study.store.get(run)
        scores(found.facts)
        card(found, "me/model", ["model.safetensors"])


@pytest.fixture(scope="module")
def looker(tmp_path_factory, write_project):
    return Looker(write_project(tmp_path_factory.mktemp("records"), 3, {}, admin_api_key=KEY))


LEAVES = st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False) | st.sampled_from(
    ["", "x", "sentiment", "\ud800", "\x00<b>", "9" * 400])
NAMES = st.sampled_from(["sentiment", "test", "val", "n", "macro_f1", "accuracy", "ece", "per_label", "f1", "confusion",
                         "cells", "note", "name", "positive", "\ud800"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12)
SPLITS = st.dictionaries(st.sampled_from(["test", "val"]), st.dictionaries(NAMES, VALUES, max_size=6) | VALUES)
METRICS = st.dictionaries(st.just("sentiment"), SPLITS | VALUES) | VALUES


def told(kind, *names, **more):
    fields = dict.fromkeys(names, VALUES) | more
    return st.fixed_dictionaries({"event": st.just(kind)}, optional=fields)


EVENTS = st.one_of(
    told("status", "step", "software", "gpu", "host", "python", "device", "threads", "pid", "node", "scheduler_job",
         "scheduler_cluster", "scheduler_calls", state=st.just("evaluating")),
    told("progress", "phase", "current", "total", "eta_s"), told("error", "code", "message", "install_hint"),
    told("metric", "name", "value", "split", "schema", "step", "t"), told("artifact", "path", "bytes"),
    told("log", "level", "msg", "scheduler_calls"),
    told("result", "status", "model_version", "label_order", "n_predictions", "kept", "why", metrics=METRICS),
)
ROWS = st.fixed_dictionaries({"schema_name": st.just("sentiment"), "instance_id": st.just("i1"), "confidence": LEAVES,
                              "payload": VALUES}, optional={"split": VALUES, "scores": VALUES})
FAR = {"event": "metric", "name": "loss", "split": "train", "t": 1}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(EVENTS, max_size=4), st.lists(ROWS, max_size=3))
@example([{**FAR, "step": 1, "value": 1e308}, {**FAR, "step": 2, "value": -1e308}], [])
@example([{"event": "status", "software": [1], "gpu": 1}, {"event": "result", "model_version": [1]}], [])
def test_whatever_is_said_of_a_run_it_can_be_looked_at(looker, events, rows):
    run, store = looker.run(), looker.study.store
    run_dir = looker.study.places.run_dir(run)
    news = fold.fold("worker", events)
    store.record(run, moves=news.moves, facts=news.facts, warnings=news.warnings)
    with contextlib.suppress(ValueError):  # an agent that tells numbers beyond all floats gets a 400
        EventLog(run_dir / "events.jsonl").append(0, events)
    # predictions are kept as they come
    (run_dir / "predictions.jsonl").write_text(
        "".join(json.dumps(line).replace("Infinity", "1e999") + "\n" for line in rows))
    looker.look(run)
    store.advance(run, "succeeded", attempt=1)
    looker.look(run)
    store.delete(run)


def test_a_model_file_whose_name_is_no_text(looker):
    """A trainer may call its files what it likes, and a file system takes any bytes."""
    run = looker.run()
    folder = looker.study.places.run_dir(run) / "artifacts" / "sentiment"
    folder.mkdir(parents=True)
    names = {os.fsdecode(b"na\xffme \xe2\x82\xac"): "na\ufffdme €", "a\nb": "a\ufffdb"}
    names |= {name: name for name in ("a&b?c#d", "50%25")}
    for name in names:
        (folder / name).write_bytes(b"weights")
    looker.study.store.advance(run, "succeeded", attempt=1)
    looker.look(run)
    page = looker.get(f"/runs/{run}").text
    links = [part.partition('"')[0] for part in page.split('href="/admin/training')[1:]]
    files = [link for link in links if "/artifacts/" in link]
    assert len(files) == len(names)
    for link in files:
        answer = looker.get(link)
        assert (answer.status_code, answer.data) == (200, b"weights")
        assert answer.headers["Content-Disposition"].startswith("attachment; ")
        part = looker.get(link, Range="bytes=3-", If_Range=answer.headers["ETag"])
        assert (part.status_code, part.data, part.headers["Content-Range"]) == (206, b"ghts", "bytes 3-6/7")
        assert looker.get(link, Range="bytes=3-", If_Range='"another"').data == b"weights"
        assert looker.get(link, Range="bytes=7-").status_code == 416
    whole = looker.get(f"/runs/{run}/artifacts.tar")
    assert int(whole.headers["Content-Length"]) == len(whole.data)
    with tarfile.open(fileobj=BytesIO(whole.data)) as archive:
        assert {name.rpartition("/")[2] for name in archive.getnames()} == set(names.values())


def test_a_log_is_whole_whatever_bytes_it_has(looker):
    run = looker.run()
    log = looker.study.places.run_dir(run) / "run.log"
    log.write_bytes(b"first\n" + b"x" * 5_000_000 + b"\xff\xe2\x82\nhalf a l")
    answer = looker.get(f"/runs/{run}/log")
    assert answer.data == log.read_bytes()
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert looker.get(f"/runs/{run}/agent.log").status_code == 404
    assert "Agent's log" not in looker.get(f"/runs/{run}").text
