"""The plugin's parts on items as Potato keeps them, without Potato."""

from __future__ import annotations

import json
import logging
import os
from types import SimpleNamespace

import flask
import pytest
from potato_training.plugin import marks, names, register
from potato_training.plugin.bridge import Bridge
from potato_training.plugin.door import PotatoDoor
from potato_training.plugin.inside import Inside
from potato_training.plugin.items import LiveItems
from potato_training.plugin.prelabels import Prelabels
from potato_training.project.items import LIVE_ITEMS, WithoutText, read_items
from potato_training.server.study import Study


class Item:
    def __init__(self, data):
        self.data = data

    def get_data(self):
        return self.data


class Items(dict):
    """The part of Potato's item manager that is used: ids in the order in which they were added."""

    def add(self, one, **data):
        self[one] = Item({"id": one, "text": f"text of {one}", **data})

    has_item, find_item = dict.__contains__, dict.get

    def item_count(self):
        return len(self)

    def get_instance_ids(self):
        return list(self)

    def set_prediction(self, one, schema, payload, field="predictions"):
        data = self[one].data
        data[field] = {**(data.get(field) or {}), schema: payload}
        return True

    def clear_prediction(self, one, schema, field="predictions"):
        return self[one].data.get(field, {}).pop(schema, None) is not None

    def shown(self, one):
        return self[one].data.get("predictions")


@pytest.fixture
def items():
    made = Items()
    for n in range(1, 4):
        made.add(f"i{n}")
    return made


@pytest.fixture
def prelabels(tmp_path):
    """(Prelabels, a function that writes their file as a run does: by rename)."""
    path = tmp_path / "prelabels.jsonl"

    def publish(*rows):
        keys = ("instance_id", "schema", "payload", "confidence")
        lines = [json.dumps({**dict(zip(keys, row, strict=True)), "run_id": "r"}) for row in rows]
        (tmp_path / "new").write_text("\n".join([*lines, "no row", ""]))
        (tmp_path / "new").rename(path)

    return Prelabels(path, "predictions"), publish


def test_prelabels_are_what_the_file_says(items, prelabels):
    live, publish = prelabels
    assert live.follow(items, ["s", "m"]) == 0
    publish(("i1", "s", "a", 0.91239), ("i1", "m", ["x", "y"], 0.5), ("i2", "s", "b", 0.7), ("i2", "off", "b", 0.7))
    assert live.follow(items, ["s", "m"]) == 3
    assert items.shown("i1") == {
        "s": {"label": "a", "confidence": 0.9124},
        "m": [{"label": "x", "confidence": 0.5}, {"label": "y", "confidence": 0.5}],
    }
    assert items.shown("i2") == {"s": {"label": "b", "confidence": 0.7}}
    assert live.of("i1", ["s", "m", "off"]) == {"s": "a", "m": ["x", "y"]}
    publish(("i1", "s", "b", 0.6))
    assert live.follow(items, ["s", "m"]) == 1
    assert (items.shown("i1"), items.shown("i2")) == ({"s": {"label": "b", "confidence": 0.6}}, {})
    assert live.follow(items, []) == 0
    assert items.shown("i1") == {}, "the config names the scheme no more"


def test_nothing_is_touched_while_nothing_changes(items, prelabels):
    live, publish = prelabels
    publish(("i1", "s", "a", 0.9))
    live.follow(items, ["s"])
    items["i1"].data.clear()
    live.follow(items, ["s"])
    assert items["i1"].data == {}


def test_a_proposal_of_the_data_file_comes_back(items, prelabels):
    live, publish = prelabels
    items.add("p", predictions={"s": "from the file", "other": 1})
    publish(("p", "s", "a", 0.9))
    live.follow(items, ["s"])
    publish(("p", "s", "b", 0.9))
    live.follow(items, ["s"])
    assert items.shown("p") == {"s": {"label": "b", "confidence": 0.9}, "other": 1}
    publish()
    live.follow(items, ["s"])
    assert items.shown("p") == {"s": "from the file", "other": 1}


def test_an_item_that_comes_later_gets_its_prelabel(items, prelabels):
    live, publish = prelabels
    publish(("later", "s", "a", 0.9))
    assert live.follow(items, ["s"]) == 0
    items.add("later")
    assert live.follow(items, ["s"]) == 1
    assert items.shown("later") == {"s": {"label": "a", "confidence": 0.9}}


def ids(config):
    return [item.id for item in read_items(config)]


def test_items_that_the_files_do_not_hold_are_written_down(items, new_project):
    config = new_project(3)
    live = LiveItems(config)
    config.task_dir.joinpath("training").mkdir()
    live.follow(items)
    assert not (config.task_dir / LIVE_ITEMS).exists(), "the files hold them all"
    items.add("new")
    items.add("without", text="")
    live.follow(items)
    assert ids(config) == ["i1", "i2", "i3", "new"]
    without = WithoutText()
    list(read_items(config, without))
    assert without.words() == "1 item has no text, and is left out: without"
    assert (config.task_dir / LIVE_ITEMS).stat().st_mode & 0o777 == 0o600
    items.add("newer", text=["a turn", "another"])
    live.follow(items)
    assert [item.text for item in read_items(config)][3:] == ["text of new", "a turn\nanother"]
    LiveItems(config).follow(items)  # another start
    assert ids(config) == ["i1", "i2", "i3", "new", "newer"]
    for one in ("new", "newer", "without"):
        del items[one]
    LiveItems(config).follow(items)
    assert not (config.task_dir / LIVE_ITEMS).exists()


def test_another_server_may_know_items_that_this_one_does_not(items, new_project):
    config = new_project(3)
    path = config.task_dir / LIVE_ITEMS
    path.parent.mkdir()
    row = json.dumps({"id": "theirs", "text": "t"})
    path.write_text(json.dumps({"live_items": 1, "pid": os.getppid()}) + f"\n{row}\n" + row[:9])
    items.add("ours")
    LiveItems(config).follow(items)
    assert ids(config) == ["i1", "i2", "i3", "theirs", "ours"]
    gone = 2**22 + 1  # no process has such a number
    path.write_text(json.dumps({"live_items": 1, "pid": gone}) + f"\n{row}\n")
    LiveItems(config).follow(items)
    assert ids(config) == ["i1", "i2", "i3", "ours"]


def test_data_files_that_cannot_be_read_leave_things_as_they_are(items, new_project, caplog):
    config = new_project(1)
    config.data_files[0].write_text("{")
    with caplog.at_level(logging.WARNING):
        LiveItems(config).follow(items)
    assert "live items are not written: data/items.jsonl: line 1: not JSON" in caplog.text


def test_without_potato_registering_changes_nothing_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        register(None)
    (line,) = caplog.messages
    assert line.startswith("training-backends: ")
    assert line.endswith("Potato's own training stays in place.")


def test_prelabels_are_marked_and_followed_while_the_config_is_broken(items, prelabels, new_project, monkeypatch):
    study = Study(new_project(3).path)
    followed, publish = prelabels
    publish(("i1", "sentiment", "positive", 0.9))
    followed.follow(items, ["sentiment"])
    app = flask.Flask(__name__)
    app.secret_key = "x"
    app.register_blueprint(marks.make_blueprint(followed, study))
    state = SimpleNamespace(get_label_annotations=lambda item: {}, get_assigned_instance_ids=lambda: {"i1"})
    monkeypatch.setattr(names, "user_state", lambda name: state)
    monkeypatch.setattr(names, "items", lambda: items)
    browser = app.test_client()
    with browser.session_transaction() as session:
        session["username"] = "ann"
    study.config().path.write_text("model_training: [")
    assert study.problems()
    answer = browser.get(marks.PATH, query_string={"instance_id": "i1"})
    assert (answer.status_code, answer.json) == (200, {"sentiment": "positive"})
    inside = object.__new__(Inside)  # its thread is another test's
    inside.study, inside.prelabels, inside.items = study, followed, LiveItems(study.last_config())
    monkeypatch.setitem(study.last_config().training["writeback"], "schemas", ["sentiment"])
    publish(("i2", "sentiment", "negative", 0.8))
    inside.look()
    assert items.shown("i2") == {"sentiment": {"label": "negative", "confidence": 0.8}}
    assert browser.get(marks.PATH, query_string={"instance_id": "i2"}).json == {}, "an item of somebody else's"


@pytest.mark.parametrize(("user", "key", "person"), [
    ("ann", True, "ann"), ("ann\x1b[2J" + "x" * 200, False, ("ann [2J" + "x" * 200)[:80]), (None, True, "admin key"),
    (None, False, ""), (7, True, "admin key"),
])
def test_a_run_is_started_by_potatoes_user_or_whoever_has_the_key(user, key, person, monkeypatch):
    app = flask.Flask(__name__)
    app.secret_key = "x"
    monkeypatch.setattr(names, "roles", lambda: SimpleNamespace(has_valid_admin_key=lambda request, session: key))
    with app.test_request_context("/"):
        if user is not None:
            flask.session["username"] = user
        assert PotatoDoor().person() == person


def test_a_server_that_is_not_started_says_who_stopped_it_and_how_to_go_on(new_project, capsys):
    path = new_project(1).path
    path.write_text(path.read_text().replace('"enabled"', '"retain_run": 3, "enabled"'))
    with pytest.raises(SystemExit):
        Bridge().init_manager({"__config_file__": str(path)})
    said = capsys.readouterr().err.splitlines()
    assert "model_training.retain_run" in said[0]
    assert said[-1] == "Potato is not started: correct this, or take `training-backends` out of `plugins:`"


@pytest.mark.parametrize("inside", [None, SimpleNamespace(mount=lambda app: None)])
def test_the_log_says_once_where_the_page_is_or_why_there_is_none(inside, caplog):
    bridge, app = Bridge(), flask.Flask(__name__)
    bridge._inside = inside
    bridge.listen()
    with caplog.at_level(logging.INFO):
        bridge.mount(SimpleNamespace(app=app))
        for _ in range(2):
            app.test_client().get("/")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "potato_training.plugin"]
    assert line == ("Training page: /admin/training" if inside else
                    "training-backends is among the plugins, but model_training.enabled is not true: "
                    "there is no /admin/training")
