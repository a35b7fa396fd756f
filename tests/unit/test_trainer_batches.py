"""Batches of similar length: every item once, little padding, the same for the same seed."""

import math

from hypothesis import given
from hypothesis import strategies as st
from potato_training.worker.trainers import hf_batches

lengths = st.lists(st.integers(1, 256), min_size=1, max_size=400)


@given(lengths=lengths, size=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_an_epoch_has_every_item_once_and_the_largest_batch_first(lengths, size, seed):
    batches = hf_batches.training_batches(lengths, size, seed)
    assert sorted(n for batch in batches for n in batch) == list(range(len(lengths)))
    assert max(map(len, batches)) <= size
    assert len(batches) == math.ceil(len(lengths) / size) or len(lengths) > hf_batches.MEGABATCH * size
    area = [max(lengths[n] for n in b) * len(b) for b in batches]
    assert area[0] == max(area)
    assert batches == hf_batches.training_batches(lengths, size, seed)


def test_epochs_differ():
    lengths = [n % 50 + 1 for n in range(300)]
    assert hf_batches.training_batches(lengths, 8, 1) != hf_batches.training_batches(lengths, 8, 2)


def test_batches_compute_little_padding():
    lengths = [int(4 + 250 * (n / 2000) ** 3) for n in range(2000)]
    batches = hf_batches.training_batches(lengths, 16, 0)
    padded = sum(max(lengths[n] for n in b) * len(b) for b in batches)
    assert padded / sum(lengths) < 1.15


@given(lengths=lengths, most=st.integers(1, 4000))
def test_prediction_batches_have_every_item_once_within_the_budget(lengths, most):
    batches = hf_batches.prediction_batches(lengths, most)
    assert sorted(n for batch in batches for n in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[n] for n in batch) * len(batch) <= most
    firsts = [lengths[b[0]] for b in batches]
    assert firsts == sorted(firsts, reverse=True)


def test_half_a_character_reaches_no_tokenizer():
    assert hf_batches.readable("a \ud83d b") == "a \ufffd b"
    assert hf_batches.readable("a \ud83d\ude00 b") == hf_batches.readable("a \U0001f600 b") == "a \U0001f600 b"

    class Tokenizer:
        eos_token_id = pad_token_id = 0

        def __call__(self, texts, **_):
            return {"input_ids": [list(text.encode("utf-8")) for text in texts]}
    rows = hf_batches.encode(Tokenizer(), ["x", "\udc00"], 8, lambda: None).rows
    assert rows[1]["input_ids"] == list("\ufffd".encode())
