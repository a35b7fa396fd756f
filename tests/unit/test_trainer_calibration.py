"""Calibration in plain Python, beside scikit-learn's where it has the same."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.worker.trainers import calibration
from potato_training.worker.trainers.decision_calibrate import surely, threshold


def overconfident(n, heat=3.0, labels=3, seed=0):
    """Rows that are surer than they should be by ``heat``, and truths drawn from what they should say."""
    rng = random.Random(seed)
    rows, truths = [], []
    for _ in range(n):
        z = [rng.gauss(0, 1.2) for _ in range(labels)]
        honest = softmax(z)
        rows.append(softmax([v * heat for v in z]))
        truths.append(rng.choices(range(labels), honest)[0])
    return rows, truths


def softmax(z):
    e = [math.exp(v - max(z)) for v in z]
    return [v / sum(e) for v in e]


def test_the_temperature_is_the_one_that_the_scores_were_heated_by():
    rows, truths = overconfident(4000)
    found = calibration.fit("temperature", "nominal", rows, truths)
    assert found["temperature"] == pytest.approx(3.0, rel=0.1)
    ticks = [tuple(k for k in range(3) if random.Random(n * 3 + k).random() < honest(row[k]))
             for n, row in enumerate(rows)]
    assert calibration.fit("temperature", "multilabel", rows, ticks)["temperature"] == pytest.approx(2.0, rel=0.1)


def honest(p):
    return 1 / (1 + math.exp(-math.log(max(p, 1e-6) / max(1 - p, 1e-6)) / 2.0))


def test_isotonic_is_scikit_learns():
    isotonic = pytest.importorskip("sklearn.isotonic")
    rng = random.Random(3)
    x = [round(rng.random(), 2) for _ in range(500)]
    y = [rng.random() < v ** 2 for v in x]
    curve = calibration._isotonic(x, y)
    theirs = isotonic.IsotonicRegression().fit(x, [float(v) for v in y])
    edge = 1 / 502
    for (at, value), other in zip(curve, theirs.predict([at for at, _ in curve]), strict=True):
        assert value == pytest.approx(min(1 - edge, max(edge, other)), abs=1e-9), at


def test_sigmoid_is_scikit_learns():
    theirs = pytest.importorskip("sklearn.calibration")
    rows, truths = overconfident(600, labels=2)
    x, y = [row[1] for row in rows], [t == 1 for t in truths]
    a, b = calibration._sigmoid(x, y)
    other_a, other_b = theirs._sigmoid_calibration([calibration._logit(p) for p in x], [float(v) for v in y])
    assert (a, b) == (pytest.approx(-other_a, abs=1e-3), pytest.approx(-other_b, abs=1e-3))


probability = st.floats(0, 1)


@given(kind=st.sampled_from(["nominal", "ordinal", "multilabel"]), n=st.integers(2, 40), labels=st.integers(2, 5),
       method=st.sampled_from(["temperature", "sigmoid", "isotonic"]), data=st.data())
def test_whatever_comes_in_probabilities_come_out_and_in_the_same_order(kind, n, labels, method, data):
    rows = [data.draw(st.lists(probability, min_size=labels, max_size=labels)) for _ in range(n)]
    if kind != "multilabel":
        rows = [[p / sum(row) for p in row] if sum(row) > 0 else [1 / labels] * labels for row in rows]
    one = st.integers(0, labels - 1)
    targets = [data.draw(st.sets(one).map(tuple) if kind == "multilabel" else one) for _ in range(n)]
    found = calibration.fit(method, kind, rows, targets)
    for row in rows:
        out = calibration.apply(found, kind, row)
        assert all(0 <= p <= 1 for p in out) and len(out) == labels
        assert kind == "multilabel" or sum(out) == pytest.approx(1)
        if method == "temperature":
            assert all(a >= b or x <= y + 1e-6 for a, x in zip(out, row, strict=True)
                       for b, y in zip(out, row, strict=True))


def test_the_method_grows_with_the_number_of_items():
    found = [calibration.method_for(n) for n in (10, 99, 100, 999, 1000)]
    assert found == ["temperature", "temperature", "sigmoid", "sigmoid", "isotonic"]


def test_a_label_that_is_too_rare_keeps_its_probabilities():
    rows = [[0.2, 0.8], [0.6, 0.4]] * 30
    found = calibration.fit("sigmoid", "multilabel", rows, [(1,)] * 4 + [()] * 56)
    assert found["labels"] == [None, None]
    assert calibration.apply(found, "multilabel", [0.2, 0.8]) == [0.2, 0.8]


def test_a_threshold_is_the_lowest_confidence_from_which_on_enough_are_right():
    rows = [[0.95, 0.05]] * 5 + [[0.9, 0.1]] * 4 + [[0.8, 0.2]] * 1 + [[0.6, 0.4]] * 10
    truths = [0] * 5 + [0] * 4 + [1] + [1] * 10
    assert threshold("nominal", 0, rows, truths, 0.9) == {"confidence": 0.8, "precision": 0.9, "n": 10}
    assert threshold("nominal", 0, rows, truths, 0.95) == {"confidence": 0.9, "precision": 1.0, "n": 9}
    assert threshold("nominal", 1, rows, truths, 0.5) is None
    assert threshold("nominal", 0, rows[:4], truths[:4], 0.9) is None
    # items of one confidence stand or fall together
    assert threshold("nominal", 0, [[0.9, 0.1]] * 10, [0] * 8 + [1] * 2, 0.9) is None
    assert threshold("multilabel", 1, [[0.1, 0.7]] * 6, [(1,)] * 6, 0.9) == {"confidence": 0.7, "precision": 1.0,
                                                                            "n": 6}


@pytest.mark.parametrize(("precision", "n", "least"), [
    (1.0, 5, 0.05 ** (1 / 5)), (1.0, 100, 0.05 ** 0.01), (0.9, 10, 0.6058), (0.9, 10_000, 0.8949), (0.0, 5, 0.0)])
def test_what_few_right_ones_are_worth(precision, n, least):
    assert surely(precision, n) == pytest.approx(least, abs=1e-4)
