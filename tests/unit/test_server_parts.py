"""The server's small parts by themselves: charts, forms, curves, logs, attempts, model files, insight."""

from __future__ import annotations

import io
import json
import re
import tarfile
import xml.dom.minidom
from types import SimpleNamespace

import flask
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from potato_training.runtime.store import Run
from potato_training.server import artifacts, charts, form, insight, logtail, rendering, runpage
from potato_training.server.app import make_blueprint
from potato_training.server.attempts import Attempts
from potato_training.server.card import card
from potato_training.server.errors import NotFound, Refused, TooMany
from potato_training.server.eventindex import MOST_POINTS, EventIndex
from potato_training.server.study import Study

NASTY = '"><script>x</script>\'&'


# --- charts ------------------------------------------------------------------------------------------

numbers = st.floats(min_value=-1e100, max_value=1e100, allow_nan=False)
points = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30)


@given(st.dictionaries(st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\ufffe\uffff"),
                               max_size=20), points, max_size=4))
def test_any_lines_make_a_picture(series):
    svg = charts.lines("t", series, x_label="x")
    if series:
        xml.dom.minidom.parseString(svg.encode())
    else:
        assert svg == ""


@given(numbers, numbers)
def test_ticks_hold_what_is_drawn(a, b):
    low, high = min(a, b), max(a, b)
    ticks = charts.ticks(low, high)
    step = ticks[1] - ticks[0]
    assert ticks[0] <= low + step * 1e-6
    assert ticks[-1] >= high - step * 1e-6
    assert 2 <= len(ticks) <= 9


def test_names_in_a_chart_are_text():
    lines = charts.lines(NASTY, {NASTY: [(0, 1), (1, 2)]}, x_label=NASTY)
    bars = charts.bars(NASTY, [1, 2], x_label=NASTY)
    for svg in (lines, bars, charts.calibration(NASTY, [(0.5, 0.5, 3)])):
        assert "<script" not in svg
        xml.dom.minidom.parseString(svg.encode())


ANYTHING = st.text() | st.text(st.characters(max_codepoint=0xA0)) | st.text(st.characters(categories=["Cs"]))


@given(ANYTHING, ANYTHING)
def test_no_text_of_a_page_has_what_html_does_not_allow(one, other):
    app = flask.Flask(__name__)
    with app.test_request_context("/"):
        error = Refused(f"{NASTY}\0{one}", other)
        page = rendering.render("error.html", error=error, task=one, said=other, who=None)
    assert "\N{REPLACEMENT CHARACTER}" in page and "<script>x" not in page
    page.encode()
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", page)
    marked = rendering.printable(Markup("<b>\x1b</b>\n"))
    assert marked == "<b>\N{REPLACEMENT CHARACTER}</b>\n" and hasattr(marked, "__html__")


def test_nothing_to_draw():
    assert charts.lines("t", {}, x_label="x") == ""
    assert charts.bars("t", [0, 0], x_label="x") == ""
    assert charts.calibration("t", []) == ""


# --- the form ----------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object", "additionalProperties": False, "properties": {
        "epochs": {"type": ["integer", "null"], "minimum": 1, "default": None},
        "rate": {"type": "number", "exclusiveMinimum": 0, "default": 5e-05},
        "mode": {"type": "string", "enum": ["auto", "fast"], "default": "auto"},
        "careful": {"type": "boolean", "default": True},
        "lora": {"type": ["object", "null"], "default": None, "additionalProperties": False, "properties": {
            "r": {"type": "integer", "minimum": 1, "default": 16},
            "on": {"type": ["array", "null"], "items": {"type": "string"}}}},
    },
}


def sent(**values):
    return {f"p.t.{name.replace('__', '.')}": value for name, value in values.items()}


def test_fields_follow_the_schema():
    found = {f.name: f for f in form.fields(SCHEMA)}
    assert (found["epochs"].kind, found["epochs"].default, found["epochs"].least) == ("integer", "", 1)
    assert (found["rate"].kind, found["rate"].default) == ("number", "5e-05")
    assert found["mode"].choices == ("auto", "fast")
    assert (found["careful"].kind, found["careful"].default) == ("boolean", "true")
    assert [f.name for f in found["lora"].inside] == ["lora.r", "lora.on"]


@pytest.mark.parametrize(("values", "params"), [
    ({}, {}), ({"rate": "5e-05", "mode": "auto", "careful": "true", "lora": "off", "lora__r": "4"}, {}),
    ({"epochs": "3", "rate": " 0.1 ", "careful": "false", "mode": "fast"},
     {"epochs": 3, "rate": 0.1, "careful": False, "mode": "fast"}),
    ({"lora": "on"}, {"lora": {}}),
    ({"lora": "on", "lora__r": "8", "lora__on": "q,v"}, {"lora": {"r": 8, "on": ["q", "v"]}}),
])
def test_what_a_form_sends(values, params):
    assert form.read("t", SCHEMA, sent(**values)) == (params, {})


@pytest.mark.parametrize("params", [
    {}, {"epochs": 3, "rate": 0.1234567890123, "careful": False, "mode": "fast"}, {"lora": {}},
    {"lora": {"r": 8, "on": ["q", "v"]}}, {"rate": 1e-300},
])
def test_a_form_can_be_filled_with_what_a_run_had(params):
    filled = form.sent_of("t", SCHEMA, {**params, "epochs": params.get("epochs"), "unknown": [1]})
    assert form.read("t", SCHEMA, filled) == (params, {})


def test_what_is_wrong_is_said_at_its_field():
    params, wrong = form.read("t", SCHEMA, sent(epochs="0", rate="much", mode="fast"))
    assert params == {"mode": "fast"}
    assert set(wrong) == {"p.t.epochs", "p.t.rate"}


# --- events ------------------------------------------------------------------------------------------


def metric(n, name="loss", split="train"):
    return {"event": "metric", "t": float(n), "name": name, "split": split, "value": n / 7, "step": n}


def write(path, events, mode="a"):
    with path.open(mode) as file:
        for event in events:
            file.write(json.dumps(event) + "\n")


def test_events_are_found_by_their_number(tmp_path):
    path = tmp_path / "events.jsonl"
    index = EventIndex(path)
    assert index.events(0, 10) == ([], 0)
    write(path, ({"n": n} for n in range(1000)))
    for after in (0, 1, 255, 256, 257, 999):
        told, following = index.events(after, 3)
        assert [e["n"] for e in told] == list(range(after, min(after + 3, 1000)))
        assert following == min(after + 3, 1000)
    with path.open("a") as file:
        file.write('{"n": 10')
    assert index.events(1000, 10) == ([], 1000), "half a line is none"
    with path.open("a") as file:
        file.write("00}\nno json\n")
    assert index.events(1000, 10) == ([{"n": 1000}, {}], 1002)
    write(path, [{"n": "new"}], "w")
    assert index.events(0, 10) == ([{"n": "new"}], 1), "a file that was replaced is read anew"


@given(st.integers(1, 20_000), st.integers(1, 9000))
def test_curves_are_thin_and_whole(tmp_path_factory, count, first):
    path = tmp_path_factory.mktemp("events") / "events.jsonl"
    first = min(first, count)
    index = EventIndex(path)
    write(path, (metric(n) for n in range(first)))
    index.curves()
    write(path, (metric(n) for n in range(first, count)))
    points = index.curves()["loss", "train"]
    assert len(points) <= MOST_POINTS + 1
    assert points[0].step == 0
    assert points[-1].step == count - 1
    assert [p.step for p in points] == sorted({p.step for p in points})


def test_metrics_that_are_none(tmp_path):
    path = tmp_path / "events.jsonl"
    bad = [{**metric(1), key: value} for key, value in (("value", "x"), ("value", True), ("step", None), ("t", None))]
    bad.append({"event": "log", "msg": '"metric"'})
    write(path, [*bad, metric(1)])
    assert {k: len(v) for k, v in EventIndex(path).curves().items()} == {("loss", "train"): 1}


# --- the log -----------------------------------------------------------------------------------------


def test_a_log_in_parts(tmp_path):
    path = tmp_path / "run.log"
    assert logtail.after(path, 0).text == logtail.last(path).text == ""
    path.write_text("".join(f"line {n} ü\n" for n in range(100)) + "half")
    part = logtail.after(path, 0)
    assert part.text.endswith("line 99 ü\n")
    assert logtail.after(path, part.next).text == ""
    tail = logtail.last(path, 50)
    assert tail.text.startswith("line ")
    assert path.read_bytes()[tail.begin:tail.next].decode() == tail.text
    assert logtail.after(path, 10**9).text == part.text, "a log that was replaced by a shorter one"
    assert logtail.matching(path, "LINE 9")[0] == "line 9 ü"
    assert len(logtail.matching(path, "line", 5)) == 5


# --- attempts ----------------------------------------------------------------------------------------


def test_attempts_by_address_and_time():
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    for n in range(5):
        attempts.check("10.0.0.1")
        attempts.failed("10.0.0.1")
        now[0] += n
    with pytest.raises(TooMany) as told:
        attempts.check("10.0.0.1")
    assert 45 <= told.value.retry_s <= 61
    attempts.check("10.0.0.2")
    now[0] = 60.0
    attempts.check("10.0.0.1")
    for _ in range(5):
        attempts.failed("2001:db8::1")
    with pytest.raises(TooMany):
        attempts.check("2001:db8::ffff")
    attempts.check("2001:db8:0:1::1")


# --- files -------------------------------------------------------------------------------------------


def test_model_files_by_name_only(tmp_path):
    folder = tmp_path / "artifacts" / "s"
    folder.mkdir(parents=True)
    (folder / "model").write_bytes(b"x" * 1000)
    (folder / "ü ?#%").write_bytes(b"y")
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "artifacts" / "dir").symlink_to(tmp_path)
    assert [f.name for f in artifacts.listed(tmp_path)] == ["s/model", "s/ü ?#%"]
    assert artifacts.opened(tmp_path, "s/ü ?#%").read() == b"y"
    for name in ("s/link", "dir/secret", "../secret", str(tmp_path / "secret"), "s", "", "s/../s/model", "s//model"):
        with pytest.raises(NotFound):
            artifacts.opened(tmp_path, name)
    tar = artifacts.Tar(tmp_path, "top")
    data = b"".join(tar)
    assert len(data) == tar.size
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert {m.name: m.size for m in archive} == {"top/s/model": 1000, "top/s/ü ?#%": 1}


# --- the card ----------------------------------------------------------------------------------------


def test_a_card_shows_names_as_they_are():
    scores = {"n": 9, "macro_f1": 0.5, "per_label": {"a|b": {"n": 1, "f1": 0.5}}}
    result = {"label_order": {NASTY: ["a|b", "x\n---\nlicense: mit", NASTY]}, "metrics": {NASTY: {"test": scores}}}
    blank = dict.fromkeys(Run._fields)
    run = Run(**{**blank, "run_id": "r1", "trainer": "sklearn-text", "params": {"C": NASTY},
                 "facts": {"splits": {"train": 3}, "result": result}})
    text = card(run, "me/x", ["potato.json", "model.skops"])
    head, body = text.split("\n---\n", 1)
    assert head.startswith("---\nlibrary_name: ")
    assert "\n---\n" not in body
    assert "<script" not in body
    assert "a\\|b" in body
    hostile = Run(**{**blank, "run_id": "r1", "trainer": 'x").evil("', "params": {}, "facts": {}})
    loading = card(hostile, "me/x", ['a"b/potato.json', "c/potato.json"]).partition("## Loading it")[2]
    assert 'load("x\\").evil(\\"").load' in loading and '+ "/a\\"b"' in loading
    for line in body.splitlines():
        if line.startswith("| a"):
            assert line.replace("\\|", "").count("|") == 6


# --- insight -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "there", "shown"), [
    ("ssh", ["probe.sh", "launch.sh"], ["launch.sh", "probe.sh", "job.json"]),
    ("slurm", ["job.sh"], ["job.sh", "job.json"]),
    ("agent", [], ["commands", "job.json"]),
    ("local", [], ["commands", "job.json"]),
])
def test_what_was_executed_is_shown_for_every_backend(tmp_path, kind, there, shown):
    for name in [*there, "job.json"]:
        (tmp_path / name).write_text(f"text of {name}")
    (tmp_path / "evil.sh").symlink_to("/etc/passwd")
    found = runpage.scripts(tmp_path, Run(**{
        **dict.fromkeys(Run._fields), "backend": "here", "facts": {"backend_type": kind}}))
    assert [name for name, _ in found] == shown
    assert all(text == f"text of {name}" for name, text in found if name != "commands")
    (tmp_path / "job.json").unlink()
    if not there:
        assert runpage.scripts(tmp_path, Run(**{
            **dict.fromkeys(Run._fields), "backend": "here", "facts": {"backend_type": kind}})) == [], "not begun yet"
    commands = dict(found).get("commands", "potato_training.worker --spec")
    assert "potato_training.worker --spec" in commands


def test_insight_of_predictions_and_their_bundle(tmp_path):
    rows = [{"instance_id": f"i{n}", "schema_name": "s", "payload": "a", "confidence": n / 100, "split":
             "test" if n % 2 else "unlabeled", "scores": {"a": 0.5}} for n in range(100)]
    write(tmp_path / "predictions.jsonl", [*rows, {"schema_name": 3}, {"confidence": "x"}])
    held_out = "".join(json.dumps({"id": f"i{n}", "text": f"text {n}", "labels": {"s": "a" if n > 50 else "b"}}) + "\n"
                       for n in range(1, 100, 2)).encode()
    with tarfile.open(tmp_path / "bundle.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("test.jsonl")
        info.size = len(held_out)
        archive.addfile(info, io.BytesIO(held_out))
    found = insight.read(tmp_path)["s"]
    assert found.counts == {"test": 50, "unlabeled": 50}
    assert sum(found.histogram) == 100
    assert [u.item for u in found.unsure] == [f"i{n}" for n in range(insight.LEAST_CERTAIN)]
    assert (found.unsure[1].text, found.unsure[1].label) == ("text 1", "b")
    assert [n for _, _, n in found.calibration] == [5] * 10
    assert [right for _, right, _ in found.calibration] == [0.0] * 5 + [1.0] * 5


def test_no_predictions_make_a_page_without_end(tmp_path):
    """An agent may upload half a gigabyte of them, each with names of its own."""
    row = {"schema_name": "s", "instance_id": "i", "payload": "a", "confidence": 0.5, "split": "val"}
    long = "x" * 100_000
    strange = [{**row, "split": f"split {n}"} for n in range(300)]
    strange += [{**row, "instance_id": long}, {**row, "payload": long}, {**row, "payload": ["a"] * 5000}, row]
    write(tmp_path / "predictions.jsonl", [*strange, *({**row, "schema_name": f"s{n}"} for n in range(300))])
    found = insight.read(tmp_path)
    assert found["s"].counts == {"other": 300, "val": 1}
    assert len(found) == 100
    assert all(len(str(unsure)) < 3000 for one in found.values() for unsure in one.unsure)


def test_no_predictions(tmp_path):
    assert insight.Insights().of(tmp_path) == {}
    (tmp_path / "predictions.jsonl").write_text("x\n")
    (tmp_path / "bundle.tar.gz").write_text("no archive")
    assert insight.Insights().of(tmp_path) == {}


@pytest.mark.parametrize(("value", "shown"), [
    (2_000_000, "2000000"), (2e6, "2000000"), (100, "100"), (0.5, "0.5"), (1e-8, "1e-08"), (0, "0"), (1e300, "1e+300")])
def test_a_bound_is_written_as_a_person_would(value, shown):
    assert form.plain_number(value) == shown


def test_in_a_host_that_answers_in_html_every_address_of_the_api_answers_in_json(new_project):
    door = SimpleNamespace(check_host=lambda: None, sign_in_at=lambda: "", admit=lambda: "key", person=lambda: "")
    host = flask.Flask("host")
    host.register_blueprint(make_blueprint(Study(new_project(1).path), door, SimpleNamespace(told=lambda: {})))
    browser = host.test_client()
    for path in ("", "/", "/nothing", "/runs/../x", "/runs/../../../etc/passwd", "/nothing/", "/runs/r/x/y"):
        for method in ("GET", "POST", "DELETE"):
            answer = browser.open(f"/admin/training/api{path}", method=method)
            assert (answer.status_code, answer.is_json) == (404, True), (method, path, answer.text)
            assert answer.headers["X-Frame-Options"] == "DENY"
    answer = browser.delete("/admin/training/api/trainers")
    assert (answer.status_code, answer.headers["Allow"], answer.is_json) == (405, "GET, HEAD, OPTIONS", True)
    answer = browser.get("/admin/training/api/runs")
    assert answer.json == {"runs": []}
    assert "potato_training_supervisor_up 0" in browser.get("/admin/training/metrics").text
    for path in ("/admin/training/nothing", "/admin/training/api//runs", "/admin/training//api/runs"):
        answer = browser.get(path)
        assert answer.status_code == 404 and "here is nothing at this address" in answer.text, path
    assert "nothing at this address" not in browser.get("/admin/nothing").text, "that is the host's"
