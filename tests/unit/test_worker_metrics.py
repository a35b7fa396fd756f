"""Held-out scores against scikit-learn's, and their edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.worker import metrics

LABELS = ("a", "b", "c", "d")


def one_hot_ish(draw):
    raw = draw(st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4))
    return [p / sum(raw) for p in raw]


@st.composite
def single_label(draw):
    n = draw(st.integers(5, 30))
    return [draw(st.integers(0, 3)) for _ in range(n)], [one_hot_ish(draw) for _ in range(n)]


@st.composite
def multi_label(draw):
    n = draw(st.integers(5, 20))
    truths = [tuple(sorted(draw(st.sets(st.integers(0, 3), min_size=1)))) for _ in range(n)]
    return truths, [draw(st.lists(st.floats(0, 1), min_size=4, max_size=4)) for _ in range(n)]


@given(data=single_label(), kind=st.sampled_from(["nominal", "ordinal"]))
def test_single_label_scores_are_those_of_scikit_learn(data, kind):
    sk = pytest.importorskip("sklearn.metrics")
    truths, scores = data
    guesses = [metrics.choose(kind, s)[0] for s in scores]
    found = metrics.measure(kind, LABELS, truths, scores)
    assert found["n"] == len(truths)
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(truths, guesses))
    assert found["macro_f1"] == pytest.approx(sk.f1_score(truths, guesses, average="macro", zero_division=0))
    p, r, f, n = sk.precision_recall_fscore_support(truths, guesses, labels=range(4), zero_division=0)
    for k, label in enumerate(LABELS):
        assert found["per_label"][label] == {
            "precision": pytest.approx(p[k]), "recall": pytest.approx(r[k]), "f1": pytest.approx(f[k]), "n": n[k]}
    table = sk.confusion_matrix(truths, guesses, labels=range(4))
    assert {(t, g): c for t, g, c in found["confusion"]["cells"]} == {
        (t, g): table[t, g] for t in range(4) for g in range(4) if table[t, g]}
    if kind == "ordinal":
        assert found["mae"] == pytest.approx(sk.mean_absolute_error(truths, guesses))


@given(data=multi_label())
def test_multilabel_scores_are_those_of_scikit_learn(data):
    sk = pytest.importorskip("sklearn.metrics")
    numpy = pytest.importorskip("numpy")
    truths, scores = data
    guesses = [metrics.choose("multilabel", s)[0] for s in scores]

    def table(rows):
        return numpy.array([[int(k in row) for k in range(4)] for row in rows])
    found = metrics.measure("multilabel", LABELS, truths, scores)
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(table(truths), table(guesses)))
    p, r, f, n = sk.precision_recall_fscore_support(table(truths), table(guesses), zero_division=0)
    for k, label in enumerate(LABELS):
        assert found["per_label"][label] == {
            "precision": pytest.approx(p[k]), "recall": pytest.approx(r[k]), "f1": pytest.approx(f[k]), "n": n[k]}
    occur = [k for k in range(4) if any(k in row for row in truths + guesses)]
    assert found["macro_f1"] == pytest.approx(sum(f[k] for k in occur) / len(occur))
    assert "confusion" not in found


@given(data=st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60))
def test_calibration_error_is_the_weighted_gap_of_ten_bins(data):
    numpy = pytest.importorskip("numpy")
    p = numpy.array([c for c, _ in data])
    hit = numpy.array([h for _, h in data], dtype=float)
    bins = numpy.minimum(9, numpy.floor(p * 10).astype(int))
    gap = sum(abs(p[bins == b].mean() - hit[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    assert metrics.calibration_error(list(p), list(hit)) == pytest.approx(gap, abs=1e-9)


def test_a_sure_and_right_model_has_no_calibration_error():
    assert metrics.calibration_error([1.0] * 8, [True] * 8) == 0.0


@pytest.mark.parametrize("n", range(5))
def test_fewer_than_five_items_have_no_scores(n):
    assert set(metrics.measure("nominal", LABELS, [0] * n, [[1, 0, 0, 0]] * n)) == {"n", "note"}


def test_equal_scores_are_decided_by_the_schemes_order():
    assert metrics.choose("nominal", [0.25, 0.25, 0.25, 0.25]) == (0, 0.25)


def test_a_multilabel_answer_is_never_empty():
    assert metrics.choose("multilabel", [0.1, 0.4, 0.2])[0] == (1,)


@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_multilabel_confidence_is_the_chance_that_the_whole_answer_is_right(scores):
    chosen, confidence = metrics.choose("multilabel", scores)
    expected = 1.0
    for n, p in enumerate(scores):
        expected *= p if n in chosen else 1 - p
    assert confidence == pytest.approx(expected)


@given(data=single_label())
def test_the_quick_macro_f1_is_the_measured_one(data):
    truths, scores = data
    measured = metrics.measure("nominal", LABELS, truths, scores)
    assert metrics.macro_f1("nominal", LABELS, truths, scores) == measured["macro_f1"]
