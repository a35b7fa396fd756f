"""decision-calibrate from the command: which run it takes, what it refuses."""

import json
from importlib.util import find_spec

import pytest
from potato_training.runtime import earlier
from potato_training.runtime.store import Store
from potato_training.schema.errors import UsageError


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
    if not find_spec("sklearn"):
        pytest.skip("needs scikit-learn")
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
    assert ran.returncode == 2 and "there is no run '../../etc'" in ran.stderr
    assert study.runs() == []


def test_the_run_is_named_as_show_and_logs_take_it(study):
    """The whole id is recorded; what cannot be calibrated is said with why."""
    study.places.prepare()
    store = Store(study.places.store)
    made = []
    for n, state in enumerate(("succeeded", "succeeded", "failed")):
        made.append(f"20250101-00000{n}-abcdef")
        store.insert(made[-1], trainer="test-quick", schemas=("sentiment",), params={}, backend="local",
                     config="config.yaml", trigger="cli", started_by="me", backend_type="local")
        store.advance(made[-1], state)
    study.places.run_dir(made[0]).mkdir()
    (study.places.run_dir(made[0]) / "predictions.jsonl").touch()

    def choose(name):
        return earlier.choose(store, study.places, ("sentiment",), (), {"run": name})

    assert choose("20250101-000000") == (("sentiment",), {"run": made[0]})
    for name, says in [
        ("last", f"run {made[2]} has no predictions to calibrate: it is failed"),
        ("20250101-000001", f"run {made[1]} has no predictions to calibrate: its predictions.jsonl is gone"),
        ("2025", "'2025' is the beginning of 3 runs"), ("", "there is no run ''"),
    ]:
        with pytest.raises(UsageError) as caught:
            choose(name)
        assert caught.value.message == says
    ran = study.potato("training", "run", "--trainer", "decision-calibrate", "--param", "run=")
    assert ran.returncode == 2 and "run is empty" in ran.stderr
