"""What a learning curve says: intervals that hold, verdicts that follow from them, parts that are nested."""

import json
import math
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from potato_training.runtime import curve, curve_stats
from potato_training.runtime.curve_stats import LEVEL, PAYS, UNKNOWN, gain, share_right, verdict
from potato_training.runtime.places import Places


@given(st.integers(1, 500), st.data())
def test_an_interval_holds_its_value_and_stays_within_nothing_and_all(n, data):
    right = data.draw(st.integers(0, n))
    found = share_right(right, n)
    assert 0 <= found.low <= found.value <= found.high <= 1
    # Wilson's bounds are where a test of that share would just not refuse what was seen
    for bound in {found.low, found.high} - {0.0, 1.0}:
        z = (right / n - bound) / math.sqrt(bound * (1 - bound) / n)
        assert abs(z) == pytest.approx(curve_stats.Z, rel=1e-6) or right in (0, n)


def test_the_interval_of_a_gain_covers_the_truth():
    """Of 400 made-up pairs of models that differ by five points, 95 % of the intervals hold the five points."""
    rng = random.Random(1)
    covered = 0
    for _ in range(400):
        before, after = [], []
        for _ in range(120):
            u = rng.random()
            before.append(u < 0.75)
            after.append(u < 0.70 or 0.75 < u < 0.85)
        found = gain(before, after)
        covered += found.low <= 0.05 <= found.high
    assert 0.92 <= covered / 400 <= 0.99


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=5, max_size=300))
def test_a_gain_the_other_way_round_is_a_loss(pairs):
    before, after = zip(*pairs, strict=True)
    one, other = gain(before, after), gain(after, before)
    assert one.value == pytest.approx(-other.value)
    assert one.low == pytest.approx(-other.high) and one.low <= one.high


def pairs(won, lost, n):
    return [False] * won + [True] * lost + [True] * (n - won - lost), [True] * won + [False] * lost + [True] * (
        n - won - lost)


@pytest.mark.parametrize(("won", "lost", "n", "says"), [
    (30, 5, 200, PAYS), (0, 0, 1000, LEVEL), (3, 3, 40, UNKNOWN), (0, 0, 20, UNKNOWN), (5, 30, 200, LEVEL)])
def test_the_verdict_follows_from_the_interval(won, lost, n, says):
    found = gain(*pairs(won, lost, n))
    assert verdict(found) == says
    text = curve_stats.words(says, found, n)
    assert f"on {n} held-out items" in text and f"{100 * (won - lost) / n:+.1f} points" in text


def test_the_parts_of_a_curve_are_nested_and_of_the_wanted_size():
    ids = [f"i{n}" for n in range(4000)]
    for share in (0.25, 0.5, 0.75):
        part = {i for i in ids if curve.place(i, 7) < share}
        assert len(part) / len(ids) == pytest.approx(share, abs=0.03)
    assert sorted(ids, key=lambda i: curve.place(i, 7)) != sorted(ids, key=lambda i: curve.place(i, 8))


@given(st.lists(st.sampled_from("abc") | st.lists(st.sampled_from("abc"), min_size=1, unique=True),
                min_size=2, max_size=40), st.integers(0, 9))
def test_even_the_smallest_part_has_several_labels_and_the_parts_are_nested(labels, seed):
    labels = [sorted(one) if isinstance(labels[0], list) else one[0] for one in labels]
    every = {label for one in labels for label in one}
    assume(len(every) > 1)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole")
        whole.mkdir()
        rows = [{"id": f"i{n}", "text": "t", "labels": {"s": one}} for n, one in enumerate(labels)]
        for name, found in (("train", rows), ("val", []), ("test", [])):
            (whole / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
        (whole / "manifest.json").write_text(json.dumps({"splits": {"train": {"n": len(rows)}}}))
        before = set()
        for share in curve.SHARES:
            job = Path(folder, f"{share:g}")
            counts = curve._part(whole, job, share, seed, ["s"])
            part = [json.loads(line) for line in (job / "bundle" / "train.jsonl").read_text().splitlines()]
            ids = {row["id"] for row in part}
            assert counts == {"s": len(ids)} and len(ids) == max(2, round(share * len(rows)))
            assert before <= ids
            before = ids
            assert len({label for row in part for label in row["labels"]["s"]}) > 1
        assert before == {row["id"] for row in rows}


@pytest.mark.parametrize("content", [None, "", "{", "[]", "7", '{"t": 3}', '{"t": {"schemas": []}}',
                                     '{"t": {"schemas": {"s": {"points": [{"train": "x"}, 3]}}}}'])
def test_a_file_that_is_no_curve_draws_nothing(tmp_path, content):
    from types import SimpleNamespace

    from potato_training.server import learning

    if content is not None:
        (tmp_path / "training").mkdir()
        (tmp_path / "training" / "curve.json").write_text(content)
    assert learning.curves(Places(tmp_path), SimpleNamespace(trainer="t", schemas=("s",))) == []


def test_a_curve_is_drawn_with_its_words(tmp_path):
    from types import SimpleNamespace

    from potato_training.server import learning

    points = [(share, 100 * share, [True] * n + [False] * (60 - n), 0.5)
              for share, n in ((0.25, 30), (0.5, 40), (0.75, 42), (1.0, 58))]
    (tmp_path / "training").mkdir()
    kept = {"t": {"made": 1.0, "schemas": {"<s>": curve_stats.summary(points)}}}
    (tmp_path / "training" / "curve.json").write_text(json.dumps(kept))
    (found,) = learning.curves(Places(tmp_path), SimpleNamespace(trainer="t", schemas=("<s>", "other")))
    assert found["words"].startswith("more labels still pay: ") and found["chart"].count("<polyline") == 3
    assert "&lt;s&gt;" in found["chart"] and "<s>" not in found["chart"]
