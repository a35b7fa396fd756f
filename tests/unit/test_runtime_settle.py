"""What follows a run's end, said where nobody can overlook it."""

import json

import pytest
from potato_training.runtime.places import PREDICTIONS, Places
from potato_training.runtime.settle import settle
from potato_training.runtime.store import Store

FEW = {"n": 2, "note": "fewer than 5 items: no scores are given"}
WARNING = "sentiment: 1 prelabels were published without a held-out score"


@pytest.mark.parametrize(("metrics", "warned"), [
    ({"sentiment": {"val": FEW, "test": {"n": 0}}}, True),
    ({}, True),
    ({"sentiment": "high"}, True),
    ({"sentiment": {"val": {"n": 9, "accuracy": 0.5}, "test": FEW}}, False),
])
def test_prelabels_of_a_model_that_nothing_measured_come_with_a_warning(new_project, metrics, warned):
    config = new_project(3, training={"writeback": {"schemas": ["sentiment"], "include_unlabeled": True}})
    where = Places(config.task_dir)
    where.prepare()
    store = Store(where.store)
    store.insert("r1", trainer="sklearn-text", schemas=("sentiment",), params={}, backend="local",
                 config="config.yaml", trigger="cli", started_by="ada")
    store.advance("r1", "succeeded")
    store.note("r1", result={"metrics": metrics})
    row = {"instance_id": "i1", "schema_name": "sentiment", "payload": "positive", "confidence": 0.8}
    where.run_dir("r1").mkdir()
    (where.run_dir("r1") / PREDICTIONS).write_text(json.dumps(row) + "\n")
    settle(store, where, "r1")
    run = store.get("r1")
    assert run.facts["writeback"]["published"] == 1
    assert [w.startswith(WARNING) for w in run.facts.get("warnings", [])] == [True] * warned
    assert (f"warning: {WARNING}" in (where.run_dir("r1") / "run.log").read_text()) == warned
