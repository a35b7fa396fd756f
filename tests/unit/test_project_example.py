"""examples/reviews is what its readers are promised: enough to learn from, and one annotator who is poor."""

import json
import tarfile
from pathlib import Path

import pytest
from potato_training.project import build_bundle, summary
from potato_training.schema.config import load_or_raise

CONFIG = Path(__file__).parents[2] / "examples" / "reviews" / "config.yaml"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """(manifest, {split: rows}) of both schemes."""
    path = tmp_path_factory.mktemp("example") / "bundle.tar.gz"
    manifest = build_bundle(load_or_raise(CONFIG), ["sentiment", "aspects"], path).manifest
    with tarfile.open(path) as tar:
        rows = {
            part: [json.loads(line) for line in tar.extractfile(facts["path"]).read().decode().splitlines()]
            for part, facts in manifest["splits"].items()
        }
    return manifest, rows


def test_several_hundred_different_reviews_of_which_sixty_percent_are_annotated():
    told = summary(load_or_raise(CONFIG))
    assert told["items"] >= 300 and 0.55 < told["annotated"] / told["items"] < 0.65
    assert told["annotators"] == 4 and told["warnings"] == []
    texts = [json.loads(line)["text"] for line in (CONFIG.parent / "data/reviews.jsonl").open()]
    assert len(set(texts)) == len(texts)


def test_one_annotator_is_poor_and_the_others_are_not(bundle):
    for facts in bundle[0]["aggregation"]["per_schema"].values():
        by_annotator = sorted(one["with_consensus"] for one in facts["per_annotator"].values())
        assert len(by_annotator) == 4 and by_annotator[0] < by_annotator[1] - 0.2
        assert facts["disagreements"] > 50


def test_a_plain_text_classifier_learns_the_sentiment(bundle):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    _, rows = bundle
    train = rows["train"]
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10))
    model.fit([row["text"] for row in train], [row["labels"]["sentiment"] for row in train])
    held_out = rows["val"] + rows["test"]
    truth = [row["labels"]["sentiment"] for row in held_out]
    right = model.predict([row["text"] for row in held_out]) == truth
    most = max(truth.count(label) for label in set(truth)) / len(truth)
    assert right.mean() > 0.7 > most + 0.2
