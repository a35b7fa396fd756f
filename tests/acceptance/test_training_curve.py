"""potato training curve: four trainings on this machine, nested parts, one verdict, nothing left behind."""

import json
import os
import signal
from importlib.util import find_spec

import pytest


def test_a_curve_of_every_scheme_and_the_page_that_draws_it(many_schemes):
    """With a trainer that learns which label is commonest: quick, and it has all that a curve needs."""
    study = many_schemes
    ran = study.potato("training", "curve", "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kept = json.loads((study.places.root / "curve.json").read_text())["test-quick"]
    assert set(kept["schemas"]) == {"sentiment", "topics", "strength", "lang"}
    for name, one in kept["schemas"].items():
        points = one["points"]
        assert [p["share"] for p in points] == [0.25, 0.5, 0.75, 1.0]
        counts = [p["train"] for p in points]
        assert counts == [max(2, round(s * counts[-1])) for s in (0.25, 0.5, 0.75, 1.0)]
        assert all(p["low"] <= p["accuracy"] <= p["high"] for p in points)
        assert name in ran.stdout and one["words"] in ran.stdout
    assert study.runs() == [] and not list(study.places.root.glob("curve-*"))
    assert not study.places.prelabels.exists()
    assert study.processes() == []


def test_more_labels_pay_where_they_do_and_it_is_kept_beside_other_curves(study):
    if not find_spec("sklearn"):
        pytest.skip("needs scikit-learn")
    study.potato("training", "curve", "--trainer", "test-quick", check=True)
    ran = study.potato("training", "curve", "--trainer", "sklearn-text", "--param", "char_ngrams=0", "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    curve = json.loads(ran.stdout)
    kept = json.loads((study.places.root / "curve.json").read_text())
    assert kept["sklearn-text"] == curve and set(kept) == {"test-quick", "sklearn-text"}
    one = curve["schemas"]["sentiment"]
    assert one["points"][-1]["accuracy"] > 0.6 and curve["params"] == {"char_ngrams": 0}
    # all of the labels are what a run trains on: the same score
    study.potato("training", "run", "--trainer", "sklearn-text", "--param", "char_ngrams=0", check=True)
    counts = study.runs()[0].facts["splits"]
    assert one["points"][-1]["train"] == counts["train"]


@pytest.mark.parametrize(("arguments", "code", "says"), [
    (["--trainer", "decision-calibrate"], 2, "decision-calibrate trains nothing: it has no curve"),
    (["--trainer", "no-such"], 2, "there is no trainer 'no-such'"),
    (["--schemas", "mood"], 2, "there is no annotation scheme 'mood'"),
    (["--trainer", "test-crash", "--param", "how=refuse"], 1, "the test trainer refuses"),
    (["--trainer", "test-crash", "--param", "how=kill"], 1, "the training ended with exit code -9"),
])
def test_what_cannot_be_drawn_is_said(study, arguments, code, says):
    ran = study.potato("training", "curve", *arguments)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert says in ran.stderr and "Traceback" not in ran.stderr
    assert not (study.places.root / "curve.json").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_training_and_leaves_nothing(study, wait_until, number, code):
    """The worker is told: the end of its stdin alone would be waited on for half of these seconds."""
    study.configure(grace_seconds=3000)
    process = study.start("training", "curve", "--trainer", "test-slow", "--param", "steps=100000")
    study.worker()
    process.send_signal(number)
    output, ended = study.finish(process)
    assert ended == code and "Traceback" not in output
    wait_until(lambda: not study.processes(), "the end of the worker")
    assert not list(study.places.root.glob("curve-*"))


def test_what_a_killed_curve_left_is_removed_by_the_next_and_nothing_of_a_living_one(study, wait_until):
    refused = ("training", "curve", "--trainer", "test-crash", "--param", "how=refuse")
    process = study.start("training", "curve", "--trainer", "test-slow", "--param", "steps=100000")
    worker = study.worker()
    (folder,) = study.places.root.glob("curve-*")
    assert "the test trainer refuses" in study.potato(*refused).stderr
    assert (folder / "bundle.tar.gz").is_file() and process.poll() is None
    assert list(study.places.root.glob("curve-*")) == [folder]
    process.kill()
    os.kill(worker, signal.SIGKILL)
    study.finish(process)
    wait_until(lambda: not study.processes(), "the end of the worker")
    assert folder.is_dir()
    assert "the test trainer refuses" in study.potato(*refused).stderr
    assert not list(study.places.root.glob("curve-*"))
