"""sklearn-text through the real worker: every kind, the same bytes for the same seed, odd data, a safe file."""

import json
import pickletools
import subprocess
import sys
import zipfile
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(not (find_spec("sklearn") and find_spec("skops")), reason="needs scikit-learn")

LIBRARIES = ("sklearn.linear_model", "sklearn.feature_extraction.text", "skops.io")     # of the quick jobs

RELOAD = """
import json, sys
from potato_training.worker.trainers.sklearn_text import SklearnText
told = json.load(sys.stdin)
json.dump({folder: SklearnText.load(folder).predict(texts) for folder, texts in told.items()}, sys.stdout)
"""


@pytest.fixture(scope="module")
def learned(make_jobs):
    """A job that has ended; for reading only."""
    job = make_jobs("sklearn-text", schemas=("sentiment", "stars", "topics"))
    assert job.run() == 0, job.stderr
    return job


def test_every_kind_learns_and_is_scored(learned):
    metrics = learned.last["metrics"]
    for name in ("sentiment", "stars", "topics"):
        for split in ("val", "test"):
            assert metrics[name][split]["accuracy"] > 0.9, (name, split)
    assert metrics["stars"]["test"]["mae"] < 0.2
    for row in learned.predictions():
        assert row["confidence"] < 1.0
        total = sum(row["scores"].values())
        assert row["schema_name"] == "topics" or total == pytest.approx(1.0, abs=1e-4)


def test_a_fresh_process_gives_the_same_predictions(learned):
    texts = {r["id"]: r["text"] for r in map(json.loads, (learned.dir / "bundle" / "test.jsonl").open())}
    rows = {name: [r for r in learned.predictions() if r["schema_name"] == name and r["split"] == "test"]
            for name in ("sentiment", "stars", "topics")}
    asked = {str(learned.dir / "artifacts" / name): [texts[r["instance_id"]] for r in rows[name]] for name in rows}
    done = subprocess.run([sys.executable, "-c", RELOAD], check=True, input=json.dumps(asked), capture_output=True,
                          text=True)
    for name, found in zip(rows, json.loads(done.stdout).values(), strict=True):
        labels = learned.last["label_order"][name]
        for row, scores in zip(rows[name], found, strict=True):
            assert row["scores"] == {k: pytest.approx(p, abs=2e-6) for k, p in zip(labels, scores, strict=True)}


def test_the_same_seed_is_the_same_model_under_any_hash_seed(make_job):
    found = []
    for n, seed in enumerate(("0", "77")):
        job = make_job("sklearn-text", name=f"job{n}", schemas=("sentiment", "topics"))
        assert job.run(env={"PYTHONHASHSEED": seed}) == 0
        found.append((job.last["model_version"], job.artifacts(), (job.dir / "predictions.jsonl").read_bytes()))
    assert found[0] == found[1]


def test_the_model_is_no_pickle_and_opens_without_this_package(learned):
    path = learned.dir / "artifacts" / "sentiment" / "model.skops"
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            assert name == "schema.json" or data.startswith(b"\x93NUMPY") or name.endswith(".npz")
            with pytest.raises(Exception):  # noqa: B017
                list(pickletools.genops(data))
    script = ("import skops.io, sys\n"
              "assert skops.io.get_untrusted_types(file=sys.argv[1]) == []\n"
              "m = skops.io.load(sys.argv[1])\n"
              "print(m['classifiers'][0].predict(m['features'].transform(['the film was awful and poor'])))\n"
              "assert not any(k.startswith('potato_training') for k in sys.modules if 'editable' not in k)\n")
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2]"


LABELS = [f"label {n}" for n in range(200)]


def schema(labels, kind="nominal", name="s"):
    return {"name": name, "annotation_type": "radio", "kind": kind, "labels": labels}


def items(pairs):
    return [{"id": str(n), "text": text, "labels": {"s": label}} for n, (text, label) in enumerate(pairs)]


ODD = {
    "4+1": ([("good", "a")] * 4 + [("bad", "b")], ["a", "b"], "nominal"),
    "five labels once each": ([(f"word{n}", "abcde"[n]) for n in range(5)], list("abcde"), "nominal"),
    "two hundred labels": ([(f"text of kind{n % 200} here", LABELS[n % 200]) for n in range(400)], LABELS, "nominal"),
    "long texts": ([("good " * 20000, "a"), ("bad " * 25000, "b")] * 3, ["a", "b"], "nominal"),
    "right to left": ([("טוב מאוד", "a"), ("רע מאוד", "b")] * 4, ["a", "b"], "nominal"),
    "emoji only": ([("😀", "a"), ("😡", "b")] * 4, ["a", "b"], "nominal"),
    "no spaces": ([("非常好的电影", "a"), ("糟糕的电影", "b")] * 4, ["a", "b"], "nominal"),
    "half a pair": ([("good \ud83d", "a"), ("bad \ud83d", "b")] * 4, ["a", "b"], "nominal"),
    "a scale with gaps": ([("good", "5"), ("bad", "1")] * 5, list("12345"), "ordinal"),
    "a scale of two": ([("good", "2"), ("bad", "1")] * 5, ["1", "2"], "ordinal"),
    "everything ticked": ([("good film", ["x", "y"]), ("bad film", ["x"])] * 5, ["x", "y", "z"], "multilabel"),
    "one character": ([("a", "a"), ("b", "b")] * 6, ["a", "b"], "nominal"),
}


@pytest.mark.parametrize("long", [True, False])
def test_odd_data_sets_are_learned(quick_job, long):
    """One run, a scheme for each odd set; the long texts alone, since every scheme's model predicts every text."""
    rows, schemas = [], []
    odd = {name: what for name, what in ODD.items() if (name == "long texts") is long}
    for name, (pairs, labels, kind) in odd.items():
        schemas.append(schema(labels, kind, name))
        rows += [json.dumps({"id": f"{name}{n}", "text": text, "labels": {name: label}})
                 for n, (text, label) in enumerate(pairs)]
    job = quick_job("sklearn-text", schemas=schemas, splits={"train": rows, "val": rows})
    assert job.run() == 0, job.stderr
    predictions = job.predictions()
    assert len(predictions) == len(rows) * len(odd)
    for name, (pairs, labels, kind) in odd.items():
        scores = job.last["metrics"][name]["val"]
        assert scores["n"] == len(pairs)
        if name not in ("five labels once each", "4+1"):
            assert scores["accuracy"] == 1.0, name
        for row in predictions:
            if row["schema_name"] == name:
                assert set(row["payload"] if kind == "multilabel" else [row["payload"]]) <= set(labels)


@pytest.mark.parametrize(("pairs", "labels", "kind", "says"), [
    ([], ["a", "b"], "nominal", "nothing to train on"),
    ([("good", "a")], ["a", "b"], "nominal", 'all 1 annotations are "a"'),
    ([("good", "a")] * 5, ["a", "b"], "nominal", 'all 5 annotations are "a"; at least 2 labels are needed'),
    ([("", "a"), (" ", "b")], ["a", "b"], "nominal", "nothing to train on"),
    ([("good", ["a"])] * 5, ["a"], "multilabel", 'all 5 annotations are "a"; at least 2 labels are needed'),
    ([("good", ["a", "b"])] * 5, ["a", "b"], "multilabel", 'all 5 annotations are "a, b"; at least 2 labels'),
    ([("good", "a\nb")] * 5, ["a\nb", "c"], "nominal", 'all 5 annotations are "a\\nb"; at least 2 labels'),
    ([("good", "a" * 5000)] * 5, ["a" * 5000, "c"], "nominal", 'all 5 annotations are "%s\u2026"' % ("a" * 79)),
])
def test_data_sets_that_cannot_be_learned_are_refused_with_the_reason(quick_job, pairs, labels, kind, says):
    job = quick_job("sklearn-text", schemas=[schema(labels, kind)], splits={"train": items(pairs)})
    assert job.run() == 1
    assert says in job.last["message"]


@pytest.mark.parametrize(("c", "code", "says"), [
    (1e300, 1, "the weights are not finite: C (1e+300) is too large"),
    (1e6, 0, "the weights had not settled when fitting was ended; a lower C (it is 1e+06) settles sooner")])
def test_a_fit_that_does_not_settle_is_told_of(quick_job, c, code, says):
    """Items of the same words and different labels: the larger C is, the further their weights are pulled."""
    pairs = [(f"good film {n % 7}", "12345"[n % 5]) for n in range(40)]
    job = quick_job("sklearn-text", schemas=[schema(list("12345"), "ordinal")], splits={"train": items(pairs)},
                    params={"C": c, "calibrate": False})
    assert job.run() == code, job.stderr
    assert says in [job.last.get("message"), *job.logs("warning")]


def test_a_model_that_answers_always_the_same_is_told_of(quick_job):
    """19 of 20 right, and nothing learned: the items of the rare label have no words of their own."""
    rows = [{"id": str(n), "text": f"a {('good', 'bad')[n % 2]} film",
             "labels": {"rare": "ba"[n % 20 > 0], "plain": "ab"[n % 2]}} for n in range(60)]
    schemas = [schema(["a", "b"], name=name) for name in ("rare", "plain")]
    job = quick_job("sklearn-text", schemas=schemas, splits={"train": rows, "test": rows[:20]})
    assert job.run() == 0, job.stderr
    assert job.last["metrics"]["rare"]["test"]["accuracy"] == 0.95
    assert [w for w in job.logs("warning") if "answers all" in w] == [
        "'rare': the model answers all 20 test items with \"a\"; it has learned nothing to tell the labels apart by"]


def test_labels_without_train_items_are_named_and_never_predicted(quick_job):
    rows = items([("good", "a"), ("bad", "b")] * 15)
    job = quick_job("sklearn-text", schemas=[schema(["c", "a", "b"])], splits={"train": rows, "val": rows})
    assert job.run() == 0
    assert any("1 of 3 labels have no train items" in w and "c" in w for w in job.logs("warning"))
    assert {r["payload"] for r in job.predictions()} == {"a", "b"}
    assert all(r["scores"]["c"] == 0 for r in job.predictions())


def test_it_is_stopped_at_once_while_scikit_learn_computes(quick_job):
    pairs = [(f"w{n} w{n * 7 % 997} w{n * 13 % 991} " * 12, LABELS[n % 200]) for n in range(6000)]
    job = quick_job("sklearn-text", schemas=[schema(LABELS)], splits={"train": items(pairs)}, params={"C": 1000.0})
    job.start()
    job.until('"step":"fitting"')
    job.control("stop")
    assert job.end() == 4
    assert job.last["status"] == "cancelled"


def test_it_does_what_any_trainer_must(conforms):
    conforms("sklearn-text")
