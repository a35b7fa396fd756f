"""Several annotators to one label: who is believed, what is counted, how ties fall."""

import random

import pytest
from potato_training.project.aggregate import join
from potato_training.project.agreement import alpha, pairwise
from potato_training.project.dawid_skene import consensus, evenly, nearby
from potato_training.project.votes import Votes
from potato_training.schema.config import Scheme

LABELS = ("a", "b", "c", "d")


def votes_of(answers, kind="nominal", labels=LABELS):
    """Votes from {annotator: {item: label or (labels)}}; items are numbers from 0."""
    votes = Votes(Scheme("s", "radio", kind, labels))
    for number, name in enumerate(sorted(answers)):
        for item, said in answers[name].items():
            votes.add(item, number, votes.code([said] if isinstance(said, str) else said))
    return votes


def joined(answers, method="consensus", n=None, **options):
    votes = votes_of(answers, **{k: options.pop(k) for k in ("kind", "labels") if k in options})
    seen = bytearray([1] * (n or len(votes.nodes)))
    result = join(votes, seen, method=method, **options)
    return result, {i: result.label(f"i{i}", node) for i, node in enumerate(votes.nodes) if node and seen[i]}


def planted(seed, truth_of, people, n=400, share=0.7):
    """``people``: name -> function(rng, true) of the label given. Each labels ``share`` of the items."""
    rng = random.Random(seed)
    truth = [truth_of(rng) for _ in range(n)]
    answers = {
        name: {i: say(rng, truth[i]) for i in range(n) if rng.random() < share} for name, say in people.items()
    }
    return truth, answers


def right(labels, truth):
    return sum(labels[i] == truth[i] for i in labels) / len(labels)


def careful(rng, true, labels=LABELS, rate=0.9):
    return true if rng.random() < rate else rng.choice([x for x in labels if x != true])


def careless(rng, true):
    return rng.choice(LABELS)


def lazy(rng, true):
    return "a"


def contrary(rng, true):
    return LABELS[(LABELS.index(true) + 1) % 4]


BAD_CROWDS = {
    "two careful, three careless": {"p1": careful, "p2": careful, "x1": careless, "x2": careless, "x3": careless},
    "two careful, three lazy": {"p1": careful, "p2": careful, "x1": lazy, "x2": lazy, "x3": lazy},
    "three careful, two contrary": {"p1": careful, "p2": careful, "p3": careful, "x1": contrary, "x2": contrary},
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("crowd", BAD_CROWDS)
def test_consensus_beats_majority_on_planted_bad_annotators(crowd, seed):
    truth, answers = planted(seed, lambda rng: rng.choice(LABELS), BAD_CROWDS[crowd])
    by_consensus = right(joined(answers)[1], truth)
    by_majority = right(joined(answers, "majority")[1], truth)
    assert by_consensus > by_majority


def test_consensus_is_no_worse_than_majority_with_good_annotators():
    people = {f"p{n}": careful for n in range(4)}
    totals = [0.0, 0.0]
    for seed in range(10):  # ties fall at random in both: one set says little
        truth, answers = planted(seed, lambda rng: rng.choice(LABELS), people)
        for n, method in enumerate(("consensus", "majority")):
            totals[n] += right(joined(answers, method)[1], truth) / 10
    assert totals[0] >= totals[1] - 0.005


def test_multilabel_consensus_beats_majority():
    def ticks(rate):
        def say(rng, true):
            said = {x for x in LABELS if (x in true) == (rng.random() < rate)}
            return tuple(sorted(said)) or (rng.choice(LABELS),)

        return say

    people = {"p1": ticks(0.95), "p2": ticks(0.95), "x1": ticks(0.5), "x2": ticks(0.5), "x3": ticks(0.5)}
    truth, answers = planted(1, lambda rng: tuple(sorted(rng.sample(LABELS, rng.randint(1, 3)))), people, 600)
    def exact(labels):
        return sum(tuple(labels[i]) == truth[i] for i in labels)

    consensus_right = exact(joined(answers, kind="multilabel")[1])
    assert consensus_right > exact(joined(answers, "majority", kind="multilabel")[1])


def test_the_poor_annotator_shows_in_the_figures():
    people = {"p1": careful, "p2": careful, "p3": careful, "x": careless}
    _, answers = planted(3, lambda rng: rng.choice(LABELS), people)
    with_consensus = {a: f["with_consensus"] for a, f in joined(answers)[0].facts["per_annotator"].items()}
    assert min(with_consensus, key=with_consensus.get) == 3 and with_consensus[3] < 0.5 < with_consensus[0]


def test_a_label_that_nobody_gave_is_never_the_consensus():
    _, answers = planted(4, lambda rng: rng.choice(LABELS), BAD_CROWDS["two careful, three careless"])
    for item, label in joined(answers)[1].items():
        assert label in {said[item] for said in answers.values() if item in said}


def test_one_annotator_is_simply_believed():
    answers = {"p": {0: "a", 1: "b", 2: "c"}}
    for method in ("consensus", "majority"):
        result, labels = joined(answers, method)
        assert labels == {0: "a", 1: "b", 2: "c"}
        assert (result.facts["agreement"], result.facts["alpha"], result.facts["ties"]) == (None, None, 0)


def test_counts_of_items_answers_ties_and_disagreements():
    answers = {
        "p": {0: "a", 1: "a", 2: "a", 3: "a"},
        "q": {0: "a", 1: "b", 2: "b"},
        "r": {0: "a", 2: "b", 5: "c"},
    }
    facts = joined(answers, "majority")[0].facts
    assert facts["items"] == 5 and facts["annotations"] == 10 and facts["annotators"] == 3
    assert facts["shared_items"] == 3 and facts["disagreements"] == 2 and facts["ties"] == 1
    assert facts["agreement"] == pytest.approx((1 + 0 + 1 / 3) / 3, abs=1e-4)


def test_only_items_that_are_there_count():
    votes = votes_of({"p": {0: "a", 1: "b"}, "q": {0: "b", 1: "b", 2: "c"}})
    facts = join(votes, bytearray([0, 1, 0]), method="consensus").facts
    assert (facts["items"], facts["annotations"], facts["disagreements"]) == (1, 2, 0)


def test_a_tie_falls_by_seed_and_item_and_favours_no_label():
    answers = {"p": dict.fromkeys(range(400), "a"), "q": dict.fromkeys(range(400), "b")}
    _, labels = joined(answers, "majority", seed=1)
    assert 150 < sum(label == "a" for label in labels.values()) < 250
    assert joined(answers, "majority", seed=1)[1] == labels != joined(answers, "majority", seed=2)[1]


def test_an_ordinal_tie_falls_to_the_middle():
    answers = {"p": {0: "1"}, "q": {0: "2"}, "r": {0: "5"}}
    result, labels = joined(answers, "majority", kind="ordinal", labels=("1", "2", "3", "4", "5"))
    assert labels == {0: "2"} and result.facts["ties"] == 1


def test_ordinal_errors_are_believed_to_be_small():
    labels = ("1", "2", "3", "4", "5")
    spread = nearby(5)
    assert spread(0, 1) > spread(0, 2) > spread(0, 4) > 0
    for true in range(5):
        assert sum(spread(true, given) for given in range(5) if given != true) == pytest.approx(1)
    # p, q and r are alike on ten items; then two near answers speak against one far away
    answers = {who: {n: labels[n % 5] for n in range(10)} for who in "pqr"}
    answers["p"][10], answers["q"][10], answers["r"][10] = "4", "5", "1"
    assert joined(answers, kind="ordinal", labels=labels)[1][10] in ("4", "5")


def test_multilabel_majority_of_each_label():
    answers = {
        "p": {0: ("a", "b"), 1: ("a",), 2: ("c",)}, "q": {0: ("a",), 1: ("b",), 2: ("c", "d")},
        "r": {0: ("a", "b"), 1: ("c",), 2: ("c", "a")},
    }
    result, labels = joined(answers, "majority", kind="multilabel")
    assert labels[0] == ["a", "b"] and labels[2] == ["c"]
    assert len(labels[1]) == 1, "no label has a majority, and something was ticked by everybody"
    assert result.facts["ties"] == 1 and result.facts["disagreements"] == 3
    assert result.facts["agreement"] == pytest.approx((2 / 3 + 0 + 4 / 9) / 3, abs=1e-4)


def test_annotators_named_differently_give_the_same_labels():
    _, answers = planted(6, lambda rng: rng.choice(LABELS), BAD_CROWDS["three careful, two contrary"])
    renamed = {f"zz{9 - n}": said for n, said in enumerate(answers.values())}
    assert joined(answers)[1] == joined(renamed)[1]


def test_stopping_a_long_consensus():
    class Stop(Exception):
        pass

    def stop():
        raise Stop

    with pytest.raises(Stop):
        consensus({((0, 0), (1, 1)): 1}, 2, evenly(2), check=stop)


def pattern(*codes):
    return tuple(enumerate(codes))


def test_krippendorffs_alpha_of_a_known_example():
    # The four-observer example of Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", p. 4
    units = [
        (1, 1, 1), (2, 2, 3, 2), (3, 3, 3, 3), (3, 3, 3, 3), (2, 2, 2, 2), (1, 2, 3, 4), (4, 4, 4, 4),
        (1, 1, 2, 1), (2, 2, 2, 2), (5, 5, 5), (1, 1), (3,),
    ]
    patterns = {}
    for unit in units:
        patterns[pattern(*unit)] = patterns.get(pattern(*unit), 0) + 1
    assert alpha(patterns) == pytest.approx(0.743, abs=5e-4)
    assert alpha(patterns, ordinal=True) == pytest.approx(0.815, abs=5e-4)


def test_agreement_where_there_is_nothing_to_compare():
    assert alpha({pattern(1): 5}) is None and pairwise({pattern(1): 5}, [(0,), (1,)]) is None
    assert alpha({pattern(1, 1): 5}) is None, "one label only: chance alone would agree"
