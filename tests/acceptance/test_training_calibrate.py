"""decision-calibrate from the command: which run it takes, what it refuses."""

import json

import pytest


def label_more(study, who, count):
    """A person labels so many of the items that nobody had labelled."""
    done = set()
    for state in (study.root / "annotation_output").glob("*/user_state.json"):
        done |= set(json.loads(state.read_text())["instance_id_to_label_to_value"])
    items = json.loads((study.root / "data" / "reviews.json").read_text())
    fresh = [item["id"] for item in items if str(item["id"]) not in done][:count]
    labels = {i: [[{"schema": "sentiment", "name": ("positive", "negative")[n % 2]}, "on"]]
              for n, i in enumerate(fresh)}
    target = study.root / "annotation_output" / who / "user_state.json"
    target.parent.mkdir()
    target.write_text(json.dumps({"user_id": who, "instance_id_to_label_to_value": labels, "origin": {}}))
    return fresh


def test_the_last_model_s_predictions_are_calibrated_by_the_labels_since(study):
    pytest.importorskip("sklearn")
    study.potato("training", "run", "--trainer", "sklearn-text", check=True)
    (first,) = study.runs()
    fresh = label_more(study, "dora", 40)
    assert fresh
    ran = study.potato("training", "run", "--trainer", "decision-calibrate")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    second = study.runs()[0]
    assert second.params["run"] == first.run_id and second.schemas == ("sentiment",) and second.backend == "local"
    run_dir = study.places.run_dir(second.run_id)
    saved = json.loads((run_dir / "artifacts" / "sentiment" / "calibration.json").read_text())
    assert saved["run"] == first.run_id and set(saved["thresholds"]) == {"positive", "negative"}
    predicted = {}
    for run in (first, second):
        lines = (study.places.run_dir(run.run_id) / "predictions.jsonl").read_text().splitlines()
        predicted[run.run_id] = {json.loads(line)["instance_id"] for line in lines}
    assert predicted[second.run_id] <= predicted[first.run_id]
    again = study.potato("training", "run", "--trainer", "decision-calibrate", "--param", "wanted_precision=0.5")
    assert again.returncode == 0, again.stdout + again.stderr
    assert study.runs()[0].params["run"] == first.run_id      # of the model, not of the calibration before
    study.nothing_is_left()


def test_it_runs_here_or_not_at_all_and_needs_an_earlier_run(study):
    study.configure(backends={"gpu": {"type": "ssh", "host": "gpu.example.org"}})
    ran = study.potato("training", "run", "--trainer", "decision-calibrate", "--backend", "gpu")
    assert ran.returncode == 2
    assert "decision-calibrate runs on the local backend only" in ran.stderr
    ran = study.potato("training", "run", "--trainer", "decision-calibrate")
    assert ran.returncode == 1 and "there is no earlier run whose predictions could be calibrated" in ran.stderr
    ran = study.potato("training", "run", "--trainer", "decision-calibrate", "--param", "run=../../etc")
    assert ran.returncode == 2 and "run ../../etc has no predictions to calibrate" in ran.stderr
    assert study.runs() == []
