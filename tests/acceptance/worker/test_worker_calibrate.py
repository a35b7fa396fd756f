"""decision-calibrate through the real worker: what is fitted, what is re-issued, what is refused."""

import json
import random
import re

import pytest

LABELS = ["pos", "neu", "neg"]


def earlier(job, rows, kind="nominal", heat=4.0, schema="sentiment", known=None):
    """Predictions that are far too sure, as an earlier run leaves them: right in 6 of 10."""
    rng = random.Random(5)
    labels = next(s["labels"] for s in job.spec["schemas"] if s["name"] == schema)
    lines = []
    for row in rows:
        if known is not None and row["id"] not in known:
            continue
        truth = row["labels"].get(schema) or labels[0]
        if kind == "multilabel":
            scores = {k: rng.choice([0.97, 0.9] if k in truth and rng.random() < 0.7 else [0.03, 0.9]) for k in labels}
        else:
            guess = truth if rng.random() < 0.6 else rng.choice(labels)
            sure = rng.uniform(0.9, 0.999)
            scores = {k: sure if k == guess else (1 - sure) / (len(labels) - 1) for k in labels}
        lines.append({"instance_id": row["id"], "schema_name": schema, "payload": "?", "confidence": 0.5,
                      "split": "unlabeled", "scores": scores})
    with open(job.dir / "earlier.jsonl", "a", encoding="utf-8") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)


def read(job):
    rows = []
    for name in ("train", "val", "test", "unlabeled"):
        text = (job.dir / "bundle" / f"{name}.jsonl").read_text(encoding="utf-8")
        rows += [(name, json.loads(line)) for line in text.splitlines()]
    return rows


@pytest.mark.parametrize(("train", "method"), [(40, "temperature"), (300, "sigmoid"), (1200, "isotonic")])
def test_confidences_become_what_they_say(make_job, train, method):
    job = make_job("decision-calibrate", train=train, val=40, test=400, unlabeled=50, earlier="earlier.jsonl",
                   params={"run": "r0", "wanted_precision": 0.6})
    earlier(job, [row for _, row in read(job)])
    assert job.run() == 0, job.stderr
    saved = json.loads((job.dir / "artifacts" / "sentiment" / "calibration.json").read_text())
    assert saved["calibration"]["method"] == method and saved["run"] == "r0" and saved["n"] == train + 40
    assert saved["calibration_error"]["after"] < saved["calibration_error"]["before"]
    scores = job.last["metrics"]["sentiment"]["test"]
    assert saved["calibration_error"]["before"] > 0.15 > 0.12 > scores["ece"]
    assert len(job.predictions()) == 40 + 400 + 50
    # from its threshold on a label is right as often as was wanted, also on items that nothing was fitted to
    truth = {row["id"]: row["labels"].get("sentiment") for split, row in read(job) if split == "test"}
    for label, found in saved["thresholds"].items():
        said = [truth[r["instance_id"]] == label for r in job.predictions() if r["split"] == "test"
                and r["payload"] == label and found and r["confidence"] >= found["confidence"]]
        assert not said or sum(said) / len(said) > 0.5
    assert any(saved["thresholds"].values())
    assert any("flatters" in line and "held-out calibration error" in line for line in job.logs("info"))
    assert not [w for w in job.logs("warning") if "may be worse" in w]
    assert any(re.search(r"of \d+ items are right [(]95 % sure: ", line) for line in job.logs("info"))


def test_every_kind_and_several_schemes(make_job):
    job = make_job("decision-calibrate", schemas=("sentiment", "stars", "topics"), train=150, test=20, unlabeled=0,
                   earlier="earlier.jsonl")
    rows = [row for _, row in read(job)]
    for name, kind in (("sentiment", "nominal"), ("stars", "ordinal"), ("topics", "multilabel")):
        earlier(job, rows, kind, schema=name)
    assert job.run() == 0, job.stderr
    assert set(job.last["metrics"]) == {"sentiment", "stars", "topics"}
    assert {r["schema_name"] for r in job.predictions()} == {"sentiment", "stars", "topics"}


def test_items_that_the_earlier_run_did_not_predict_are_left_out(make_job):
    job = make_job("decision-calibrate", train=60, val=20, test=20, unlabeled=20, earlier="earlier.jsonl")
    rows = read(job)
    known = {row["id"] for split, row in rows if split != "train"} - {"s0", "s1", "u0"}
    earlier(job, [row for _, row in rows], known=known)
    with open(job.dir / "earlier.jsonl", "a", encoding="utf-8") as f:
        f.write('not JSON\n[]\n{"instance_id": "s0", "schema_name": "sentiment", "scores": "none"}\n'
                '{"instance_id": "s1", "schema_name": "sentiment", "scores": {"pos": "high"}}\n')
    assert job.run() == 0, job.stderr
    assert {r["instance_id"] for r in job.predictions()} == known
    assert job.last["metrics"]["sentiment"]["test"]["n"] == 18


def test_a_calibration_that_does_not_hold_on_other_items_is_told_of(make_job):
    """Half sure and always right on the items that it is fitted to, half sure and half right on the test items."""
    job = make_job("decision-calibrate", train=40, val=0, test=40, unlabeled=0, earlier="earlier.jsonl")
    lines = []
    for n, (split, row) in enumerate(read(job)):
        truth = row["labels"]["sentiment"]
        guess = truth if split == "train" or n % 2 else next(k for k in LABELS if k != truth)
        lines.append({"instance_id": row["id"], "schema_name": "sentiment", "split": "unlabeled",
                      "scores": {k: 0.5 if k == guess else 0.25 for k in LABELS}})
    (job.dir / "earlier.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert job.run() == 0, job.stderr
    told = [w for w in job.logs("warning") if "may be worse than the old" in w]
    assert len(told) == 1 and "on 40 held-out items" in told[0] and "it was 0.0000 before" in told[0]
    assert "fitted to 40 items" in told[0] and job.last["metrics"]["sentiment"]["test"]["ece"] > 0.3


def test_what_would_make_it_worse_is_not_used(make_job):
    """Predictions that are right as often as they say."""
    rng = random.Random(11)
    job = make_job("decision-calibrate", train=60, val=0, test=10, unlabeled=0, earlier="earlier.jsonl")
    lines = []
    for _, row in read(job):
        truth = row["labels"]["sentiment"]
        guess = truth if rng.random() < 0.5 else next(k for k in LABELS if k != truth)
        lines.append({"instance_id": row["id"], "schema_name": "sentiment", "split": "unlabeled",
                      "scores": {k: 0.5 if k == guess else 0.25 for k in LABELS}})
    # exactly half are right, at a confidence of exactly a half
    train = [n for n, (split, _) in enumerate(read(job)) if split == "train"]
    for n in train:
        truth = read(job)[n][1]["labels"]["sentiment"]
        guess = truth if n % 2 else next(k for k in LABELS if k != truth)
        lines[n]["scores"] = {k: 0.5 if k == guess else 0.25 for k in LABELS}
    (job.dir / "earlier.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert job.run() == 0, job.stderr
    saved = json.loads((job.dir / "artifacts" / "sentiment" / "calibration.json").read_text())
    assert saved["calibration"] == {"method": "none"} and saved["calibration_error"]["before"] == 0
    assert any("the confidences stay as they are" in w for w in job.logs("warning"))
    before = {line["instance_id"]: line["scores"] for line in lines}
    assert all(r["scores"] == before[r["instance_id"]] for r in job.predictions())


@pytest.mark.parametrize(("count", "spec", "says"), [
    (9, {"earlier": "earlier.jsonl"}, "9 items that the earlier run predicted have a label of 'sentiment' by now"),
    (0, {"earlier": "earlier.jsonl"}, "the earlier run predicted nothing for 'sentiment'"),
    (None, {"earlier": "earlier.jsonl"}, "the earlier predictions cannot be read"),
    (20, {}, "there are no earlier predictions to calibrate"),
])
def test_what_cannot_be_calibrated_is_refused_with_the_reason(make_job, count, spec, says):
    job = make_job("decision-calibrate", train=30, val=0, **spec)
    if count is not None:
        (job.dir / "earlier.jsonl").touch()
        earlier(job, [row for split, row in read(job) if split == "train"][:count])
    assert job.run() == 1
    assert says in job.last["message"]


def test_it_does_what_any_trainer_must(conforms):
    conforms("decision-calibrate")
