"""What `show` and the end of `run` say of a model: how good, how surely, and against what."""

from __future__ import annotations

import os
from types import SimpleNamespace

from potato_training.cli import watch
from potato_training.cli.common import full_disk
from potato_training.cli.scores import scores
from potato_training.runtime.places import Places


def of(labels, n, right, **more):
    return {"n": n, "accuracy": right / n, "macro_f1": 0.5, "ece": 0.1,
            "per_label": {k: {"precision": 0.5, "recall": 0.5, "f1": 0.5, "n": v} for k, v in labels.items()}, **more}


def facts(**splits):
    return {"result": {"metrics": {"mood": splits}, "label_order": {"mood": ["good", "bad"]}}}


CELLS = {"confusion": {"cells": [[0, 0, 60], [1, 1, 20], [1, 0, 20]]}}


def row(text, name):
    return next(line.split() for line in text.splitlines() if line.startswith(name))


def test_a_score_stands_beside_its_interval_and_that_of_one_constant_answer():
    test = of({"good": 60, "bad": 40}, 100, 80, **CELLS)
    text = scores(facts(val=of({"good": 3, "bad": 2}, 5, 5, **CELLS), test=test))
    assert row(text, "test") == ["test", "100", "0.800", "0.711", "to", "0.867", "0.500", "0.100"]
    # right on 60 of 100; F1 of good is 2 * 60 / (60 + 100), of bad 0
    assert row(text, 'always "good"') == ["always", '"good"', "100", "0.600", "0.375"]
    assert "not surely better" not in text


def test_a_score_that_chance_may_explain_says_so():
    text = scores(facts(test=of({"good": 13, "bad": 7}, 20, 16, **CELLS)))
    assert 'test: with 20 items, not surely better than always answering "good"' in text


def test_of_several_labels_an_item_accuracy_is_explained_and_nothing_is_constant():
    text = scores(facts(test=of({"good": 13, "bad": 12}, 20, 4)))
    assert "accuracy: the share of items whose labels are all right" in text
    assert "always" not in text


def test_how_far_people_agree():
    people = {"annotations": 50, "items": 30, "annotators": 2, "shared_items": 20, "agreement": 0.75, "alpha": 0.5}

    def told(**more):
        manifest = {"aggregation": {"per_schema": {"mood": {**people, **more}}}}
        return scores(facts(test={"n": 2, "note": "fewer than 5 items"}), manifest).splitlines()[1]

    assert told() == ("labels: 50 answers to 30 items by 2 annotators; 20 items have two or more, "
                      "agreement 0.750, alpha 0.500")
    alone = told(agreement=None, annotators=1)
    assert alone == "labels: 50 answers to 30 items by 1 annotator; no item has two answers"
    assert told(alpha=None).endswith("agreement 0.750")


def test_numbers_that_are_none_stop_nothing():
    odd = {"n": "many", "accuracy": float("nan"), "per_label": {"good": {"n": "x"}, "bad": 3}, **CELLS}
    assert "test" in scores(facts(test=odd), {"aggregation": {"per_schema": {"mood": {"annotations": 3}}}})


def test_a_full_disk_is_told_while_a_run_waits_for_room(monkeypatch, tmp_path, capsys):
    room = SimpleNamespace(f_bavail=1 << 30, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    assert full_disk(tmp_path) == ""
    room.f_bavail = 3
    where = Places(tmp_path)
    assert full_disk(where.root) == f"the disk that holds {where.root} is full: make room, the run goes on or ends then"
    monkeypatch.setattr(watch.summon, "ensure_supervisor", lambda where: None)
    runs = [SimpleNamespace(over=False, settled=False, state="running")] * 30
    runs.append(SimpleNamespace(over=True, settled=True, state="failed"))
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: None)
    assert watch.watch(SimpleNamespace(get=lambda run_id: runs.pop(0)), where, "x") is False
    assert capsys.readouterr().out.count("is full") == 1
