"""Answers as a tree of tokens: what a label's chance is, and what is asked to know it."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.worker.failures import TrainerError
from potato_training.worker.trainers import llm_prompt
from potato_training.worker.trainers.llm_prompt import Answers, Question

END = 0
sequences = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple), min_size=2, max_size=12,
                     unique=True).map(lambda found: [(*s, END) for s in found])


def chances_there(prefix):
    """A made-up model's logits for the token after a prefix, the same each time."""
    rng = random.Random(repr(tuple(prefix)))
    return [rng.gauss(0, 2) for _ in range(5)]


def brute_force(answers):
    """Each answer token by token, every step among the tokens with which some answer goes on from there."""
    found = []
    for answer in answers:
        total = 0.0
        for at, token in enumerate(answer):
            logits = chances_there(answer[:at])
            allowed = {a[at] for a in answers if len(a) > at and a[:at] == answer[:at]}
            total += logits[token] - math.log(sum(math.exp(logits[t]) for t in allowed))
        found.append(total)
    return found


@given(sequences)
def test_every_fork_is_passed_once_and_the_chances_of_all_labels_sum_to_one(found):
    answers = Answers([str(n) for n in range(len(found))], found)
    passed = [fork for _, forks in answers.ways for fork in forks]
    assert len({f.prefix for f in passed}) == len(passed)
    assert all(end[:len(f.prefix)] == f.prefix for end, forks in answers.ways for f in forks)
    scores = [0.0] * len(found)
    for fork in passed:
        logits = chances_there(fork.prefix)
        total = math.log(sum(math.exp(logits[t]) for t, _ in fork.branches))
        for token, labels in fork.branches:
            for k in labels:
                scores[k] += logits[token] - total
    assert scores == pytest.approx(brute_force(found))
    assert sum(map(math.exp, scores)) == pytest.approx(1.0)


@given(sequences)
def test_the_scores_come_from_the_right_places_of_the_rows(found):
    torch = pytest.importorskip("torch")
    from potato_training.worker.trainers.llm_model import label_scores

    answers = Answers([str(n) for n in range(len(found))], found)

    class Asker:
        """Rows that end with a way's beginning, padded on the left, as a model sees them."""

        def last(self, rows, count):
            return torch.tensor([[chances_there(row[:max(0, len(row) - k)]) for k in range(count - 1, -1, -1)]
                                 for row in rows])
    rows = [end for end, _ in answers.ways]
    scores = label_scores(Asker(), rows, answers, range(len(rows))).sum(dim=0)
    assert scores.tolist() == pytest.approx(brute_force(found), abs=1e-4)


def test_labels_that_part_at_once_need_one_row_and_a_beginning_of_another_is_a_label_of_its_own():
    assert Answers("abc", [(1, END), (2, 4, END), (3, END)]).ways == [((), [llm_prompt.Fork((), (
        (1, (0,)), (2, (1,)), (3, (2,))))])]
    (end, forks), = Answers(["good", "good enough"], [(1, END), (1, 2, END)]).ways
    assert end == (1,) and [f.prefix for f in forks] == [(1,)]


def test_labels_that_the_tokenizer_cannot_tell_apart_are_refused():
    with pytest.raises(TrainerError, match='the labels "a" and "b" are the same to this model\'s tokenizer'):
        Answers("ab", [(1, END), (1, END)])


class Words:
    """A tokenizer of words; "<s>" begins what is tokenised with special tokens."""

    eos_token_id, bos_token_id, chat_template = 0, 1, None

    def __init__(self):
        self.known = {}

    def __call__(self, text, add_special_tokens=True, **_):
        ids = [self.known.setdefault(word, len(self.known) + 2) for word in text.split()]
        return {"input_ids": [1, *ids] if add_special_tokens else ids}


class Chat(Words):
    chat_template = "there is one"

    def apply_chat_template(self, messages, tokenize, add_generation_prompt, enable_thinking):
        assert add_generation_prompt and not tokenize
        return "<user> {} <assistant> ".format(messages[0]["content"])


def words_of(tokenizer, ids):
    names = {n: word for word, n in tokenizer.known.items()}
    return [names.get(n, n) for n in ids]


def test_the_question_names_the_labels_and_begins_as_the_tokenizer_begins():
    tokenizer = Words()
    question = llm_prompt.make_question(tokenizer, "mood", ["good", "bad mood"], None)
    assert question.before[0] == 1
    assert "good," in words_of(tokenizer, question.before)
    assert words_of(tokenizer, question.after) == ["Label:"]
    assert [words_of(tokenizer, a) for a in question.answers] == [["good", 0], ["bad", "mood", 0]]


def test_a_model_with_a_chat_format_is_asked_in_it():
    tokenizer = Chat()
    question = llm_prompt.make_question(tokenizer, "mood", ["good", "bad"], "Say it.")
    assert words_of(tokenizer, question.before) == ["<user>", "Say", "it."]
    assert words_of(tokenizer, question.after) == ["<assistant>"]
    assert question.before[0] != 1


def test_many_labels_are_not_named():
    tokenizer = Words()
    llm_prompt.make_question(tokenizer, "s", [f"l{n}" for n in range(61)], None)
    assert not any(word.endswith(",") for word in tokenizer.known)


def test_a_question_that_leaves_no_room_for_the_text_is_refused():
    question = Question((1,) * 20, (2,) * 4, ((3, 0), (4, 5, 0)))
    assert question.room(40) == 13
    with pytest.raises(TrainerError, match="max_length 30 leaves no room for the texts"):
        question.room(30)
    with pytest.raises(TrainerError, match="the 30 tokens that the model takes leave no room") as refused:
        question.room(30, models=True)
    assert "raise max_length" not in refused.value.hint


@pytest.mark.parametrize(("wanted", "device", "installed", "says"), [
    ("auto", "cpu", True, False), ("auto", "cuda:0", False, False), ("auto", "cuda:0", True, True),
    ("never", "cuda:0", True, False), ("always", "cuda:0", True, True),
    ("always", "cpu", True, "there is no CUDA"), ("always", "cuda", False, "bitsandbytes is not installed")])
def test_four_bits_where_they_can_be(monkeypatch, wanted, device, installed, says):
    from potato_training.worker.trainers import llm_model

    monkeypatch.setattr(llm_model, "find_spec", lambda name: object() if installed else None)
    if isinstance(says, bool):
        assert llm_model.in_four_bits(wanted, device) is says
        return
    with pytest.raises(TrainerError, match=says):
        llm_model.in_four_bits(wanted, device)
