"""A trainer's parameters as the worker checks them, with the standard library alone."""

import math

import pytest
from potato_training.worker.failures import BadSpec
from potato_training.worker.spec import check_params

SCHEMA = {"type": "object", "additionalProperties": False, "properties": {
    "size": {"type": "integer", "minimum": 1, "default": 8}, "rate": {"type": ["number", "null"], "default": None},
    "lora": {"type": "object", "default": None, "properties": {"r": {"type": "integer", "default": 4}}},
    "odd": {"default": 1.5},
    "words": {"type": "array", "items": {"type": "string"}, "default": []}}}


def test_a_whole_number_is_one_however_it_was_written():
    """JSON and YAML have 2.0 for 2, and a range of 2.0 steps is none."""
    found = check_params(SCHEMA, {"size": 2.0, "rate": 2.0, "lora": {"r": 3.0}, "odd": 2.5})
    assert found == {"size": 2, "rate": 2.0, "lora": {"r": 3}, "odd": 2.5, "words": []}
    assert [type(found["size"]), type(found["rate"]), type(found["lora"]["r"])] == [int, float, int]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400])
def test_a_number_that_cannot_be_computed_with_is_refused(value):
    with pytest.raises(BadSpec, match=r"params\.rate: .* is not a finite number"):
        check_params(SCHEMA, {"rate": value})


def test_half_a_character_is_refused_wherever_it_is():
    with pytest.raises(BadSpec, match=r"params\.words\[1\]: 'b\\udcff' has half of a character"):
        check_params(SCHEMA, {"words": ["a", "b\udcff"]})
