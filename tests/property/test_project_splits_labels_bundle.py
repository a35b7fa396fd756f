"""What holds for any project: splits depend on the id alone, bundles are deterministic, labels are the scheme's."""

import json
import tarfile
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from potato_training.project import build_bundle
from potato_training.project.aggregate import join
from potato_training.project.agreement import alpha, pairwise
from potato_training.project.dawid_skene import consensus, evenly, nearby
from potato_training.project.splits import SPLITS, place, split_of
from potato_training.project.votes import Votes
from potato_training.schema.config import Scheme, load_or_raise
from potato_training.schema.errors import UserError

ids = st.text(min_size=1, max_size=30)
seeds = st.integers(-(2**40), 2**40)
shares = st.tuples(*[st.floats(0, 1)] * 3).filter(lambda s: sum(s) > 0.01).map(
    lambda s: dict(zip(SPLITS, [x / sum(s) for x in s], strict=True))
)


@given(ids, seeds, shares)
def test_an_item_is_always_in_the_same_split_and_in_one_that_has_a_share(item, seed, parts):
    split = split_of(item, seed, parts)
    assert split == split_of(item, seed, parts) and parts[split] > 0
    assert 0 <= place(item, seed) < 1


@given(seeds)
@settings(max_examples=20)
def test_the_shares_come_out_about_right(seed):
    parts = {"train": 0.7, "val": 0.2, "test": 0.1}
    counts = dict.fromkeys(SPLITS, 0)
    for n in range(4000):
        counts[split_of(f"item-{n}", seed, parts)] += 1
    for name, share in parts.items():  # five standard deviations
        assert abs(counts[name] / 4000 - share) < 5 * (share * (1 - share) / 4000) ** 0.5


@given(ids, shares)
def test_a_larger_train_share_only_adds_to_train(item, parts):
    more = {"train": (1 + parts["train"]) / 2, "val": parts["val"] / 2, "test": parts["test"] / 2}
    assert not (split_of(item, 3, parts) == "train" != split_of(item, 3, more))


LABELS = ("a", "b", "c")
answers = st.lists(  # by annotator: item -> labels
    st.dictionaries(st.integers(0, 8), st.sets(st.sampled_from(LABELS), min_size=1), max_size=9), max_size=5
)
kinds = st.sampled_from(["nominal", "ordinal", "multilabel"])
methods = st.sampled_from(["consensus", "majority"])


def votes_of(said, kind):
    votes = Votes(Scheme("s", "radio", kind, LABELS))
    for number, one in enumerate(said):
        for item, labels in one.items():
            votes.add(item, number, votes.code(labels if kind == "multilabel" else [min(labels)]))
    return votes


@given(answers, kinds, methods)
def test_every_label_is_one_that_somebody_gave(said, kind, method):
    votes = votes_of(said, kind)
    result = join(votes, bytearray([1] * len(votes.nodes)), method=method)
    for item, node in enumerate(votes.nodes):
        if not node:
            continue
        given_labels = set().union(
            *((one[item] if kind == "multilabel" else {min(one[item])}) for one in said if item in one)
        )
        label = result.label(f"i{item}", node)
        if kind == "multilabel":
            assert label and set(label) <= given_labels
            assert label == [x for x in LABELS if x in label], "in the scheme's order, each once"
        else:
            assert label in given_labels


@given(answers, kinds, methods)
def test_what_all_agree_on_is_the_label(said, kind, method):
    votes = votes_of(said, kind)
    result = join(votes, bytearray([1] * len(votes.nodes)), method=method)
    for item, node in enumerate(votes.nodes):
        codes = {code for _, code in votes.pattern(node)}
        if len(codes) == 1:
            labels = [LABELS[k] for k in votes.values[codes.pop()]]
            assert result.label(f"i{item}", node) == (labels if kind == "multilabel" else labels[0])


@given(answers, kinds, methods)
def test_counts_add_up(said, kind, method):
    votes = votes_of(said, kind)
    facts = join(votes, bytearray([1] * len(votes.nodes)), method=method).facts
    assert facts["items"] == len(set().union(*said)) if said else facts["items"] == 0
    assert facts["annotations"] == sum(map(len, said))
    assert facts["annotators"] == sum(map(bool, said))
    assert facts["disagreements"] <= facts["shared_items"] <= facts["items"]
    assert sum(one["annotations"] for one in facts["per_annotator"].values()) == facts["annotations"]
    assert all(0 <= one["with_consensus"] <= 1 for one in facts["per_annotator"].values())
    assert facts["agreement"] is None or 0 <= facts["agreement"] <= 1
    assert facts["alpha"] is None or facts["alpha"] <= 1


patterns = st.dictionaries(
    st.dictionaries(st.integers(0, 4), st.integers(0, 3), min_size=1).map(lambda d: tuple(sorted(d.items()))),
    st.integers(1, 50),
    max_size=12,
)


@given(patterns, st.booleans())
def test_probabilities_of_a_pattern_add_up(counts, ordinal):
    for pattern, belief in consensus(counts, 4, (nearby if ordinal else evenly)(4)).items():
        assert abs(sum(belief.values()) - 1) < 1e-9
        assert set(belief) == {code for _, code in pattern}


@given(patterns)
def test_agreement_does_not_depend_on_names_or_order(counts):
    values = [(k,) for k in range(4)]
    renamed = {tuple(sorted((9 - a, c) for a, c in p)): n for p, n in reversed(counts.items())}
    for measure in (lambda c: pairwise(c, values), alpha, lambda c: alpha(c, ordinal=True)):
        one, other = measure(counts), measure(renamed)
        assert (one is None) == (other is None) and (one is None or abs(one - other) < 1e-9)


RADIO = {"annotation_type": "radio", "name": "s", "description": "?", "labels": list(LABELS)}
texts = st.text(st.characters(exclude_categories=["Cs"])).map("x{}".format)
names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)
projects = st.tuples(
    st.lists(st.tuples(names, texts), min_size=12, max_size=30, unique_by=lambda pair: pair[0]),
    st.lists(st.lists(st.sampled_from((None, *LABELS)), min_size=12, max_size=30), min_size=1, max_size=3),
)


@given(projects)
@settings(max_examples=40)
def test_a_bundle_holds_every_item_once_and_is_the_same_twice(write_project, project):
    items, people = project
    said = {
        f"ann{n}": {item: {"s": label} for (item, _), label in zip(items, labels, strict=False) if label}
        for n, labels in enumerate(people)
    }
    with tempfile.TemporaryDirectory() as folder:
        path = write_project(
            Path(folder, "p"), [{"id": i, "text": t} for i, t in items], said, schemes=(RADIO,)
        )
        config = load_or_raise(path)
        try:
            first = build_bundle(config, ["s"], Path(folder, "a"))
        except UserError as error:
            assert str(error).startswith("s: ")
            return
        assert build_bundle(config, ["s"], Path(folder, "b")).sha256 == first.sha256
        rows = {}
        with tarfile.open(Path(folder, "a")) as tar:
            for info in tar.getmembers()[1:]:
                lines = tar.extractfile(info).read().decode().split("\n")[:-1]
                assert first.manifest["splits"][info.name.removesuffix(".jsonl")]["n"] == len(lines)
                for line in lines:
                    row = json.loads(line)
                    assert row["id"] not in rows
                    rows[row["id"]] = row
                    assert bool(row["labels"]) == (info.name != "unlabeled.jsonl")
        assert {row["id"]: row["text"] for row in rows.values()} == dict(items)
        labelled = {item for one in said.values() for item in one}
        assert {item for item, row in rows.items() if row["labels"]} == labelled
