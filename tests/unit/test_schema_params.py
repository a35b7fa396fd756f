"""A trainer's parameters from a request and from the command line."""

import pytest
from potato_training.schema.errors import UserError
from potato_training.schema.params import check_params, nested, parse_param, typed_params, with_defaults

SCHEMA = {
    "type": "object", "additionalProperties": False, "properties": {
        "epochs": {"type": "integer", "minimum": 1, "default": 3},
        "learning_rate": {"type": "number", "exclusiveMinimum": 0, "default": 5e-5},
        "model": {"type": "string", "minLength": 1},
        "revision": {"type": ["string", "null"], "minLength": 1, "default": None},
        "class_weights": {"type": "boolean", "default": False},
        "precision": {"type": "string", "enum": ["auto", "fp32"], "default": "auto"},
        "target_modules": {"type": "array", "items": {"type": "string"}, "default": []},
        "lora": {"type": "object", "additionalProperties": False,
                 "properties": {"r": {"type": "integer", "default": 8}, "dropout": {"type": "number", "default": 0.1}}},
    }}


def test_right_parameters_have_no_findings():
    assert check_params(SCHEMA, {"epochs": 2, "learning_rate": 1, "model": "x", "class_weights": True, "lora": {"r": 4},
                                 "target_modules": ["q", "v"]}) == []


@pytest.mark.parametrize(("params", "path"), [
    ({"epochs": 0}, "epochs"), ({"epochs": "3"}, "epochs"), ({"epochs": 2.5}, "epochs"), ({"epochs": True}, "epochs"),
    ({"learning_rate": float("nan")}, "learning_rate"), ({"learning_rate": float("inf")}, "learning_rate"),
    ({"model": None}, "model"), ({"precision": "fp8"}, "precision"), ({"target_modules": "q"}, "target_modules"),
    ({"target_modules": [None]}, "target_modules[0]"), ({"lora": {"rank": 4}}, "lora.rank"), ({"epoch": 3}, "epoch"),
    ({"lora": 4}, "lora"), ({"epochs": 10**30}, "epochs"), ({"model": "a\nb"}, "model"),
])
def test_wrong_parameters_are_named(params, path):
    assert [f.path for f in check_params(SCHEMA, params)] == [path]
    with pytest.raises(UserError, match=path.split("[")[0]):
        typed_params(SCHEMA, params)


@pytest.mark.parametrize(("text", "pair"), [
    ("epochs=3", ("epochs", 3)), ("epochs=3.0", ("epochs", 3)), ("learning_rate=5e-5", ("learning_rate", 5e-5)),
    ("model=a=b", ("model", "a=b")), ("model=5", ("model", "5")), ("model=[x]", ("model", "[x]")),
    ("class_weights=true", ("class_weights", True)), ("class_weights=no", ("class_weights", False)),
    ("target_modules=q,v", ("target_modules", ["q", "v"])), ('target_modules=["q"]', ("target_modules", ["q"])),
    ("lora={r: 4, dropout: 0.2}", ("lora", {"r": 4, "dropout": 0.2})), ("lora={r: 4.0}", ("lora", {"r": 4})),
    ("target_modules=[q, v]", ("target_modules", ["q", "v"])), ("revision=null", ("revision", None)),
    ("target_modules=", ("target_modules", [])), ("lora.r=16", ("lora.r", 16)), ('lora={"r": 2}', ("lora", {"r": 2})),
])
def test_a_param_of_the_command_line_gets_its_type(text, pair):
    got = parse_param(SCHEMA, text)
    assert got == pair
    assert type(got[1]) is type(pair[1])


@pytest.mark.parametrize(("text", "words"), [
    ("epochs", "written name=value"), ("=3", "written name=value"), ("epoch=3", "no parameter epoch"),
    ("epochs=many", "a whole number is expected"), ("epochs=0", "at least 1"), ("model=", "empty"),
    ("lora.rank=3", "no parameter lora.rank"), ("precision=fp8", "must be auto or fp32"), ("lora=8", "a mapping"),
    ("epochs=1 ", "whole number"), ("epochs=" + "9" * 5000, "too many digits"), ("lora={", "a mapping"),
    ("revision=", "revision is empty"), ("revision= ", "revision is empty"), ("lora={r: [}", "a mapping"),
    ("lora={r: 4, r: 5}", "a mapping"), ("lora={r: &a 1}\nmodel: x", "a mapping"),
])
def test_a_wrong_param_is_told(text, words):
    with pytest.raises(UserError) as caught:
        parse_param(SCHEMA, text)
    assert words in caught.value.message


@pytest.mark.parametrize(("text", "message"), [
    ("epochs=0", "epochs is 0; it must be at least 1"),
    ("lora={r: x}", "lora.r is x, where a whole number is expected"),
    ("lora.r=x", "lora.r is x, where a whole number is expected"),
])
def test_the_name_is_said_once(text, message):
    with pytest.raises(UserError) as caught:
        parse_param(SCHEMA, text)
    assert caught.value.message == message


def test_how_a_mapping_is_written_is_hinted():
    with pytest.raises(UserError) as caught:
        parse_param(SCHEMA, "lora=8")
    assert caught.value.hint == "write 'lora={r: VALUE}', or lora.r=VALUE"


def test_a_near_name_is_suggested():
    with pytest.raises(UserError) as caught:
        parse_param(SCHEMA, "learing_rate=1")
    assert caught.value.hint == "did you mean learning_rate?"


def test_pairs_become_one_mapping():
    assert nested([("epochs", 1), ("lora.r", 2), ("lora.alpha", 3), ("epochs", 4)]) == {
        "epochs": 4, "lora": {"r": 2, "alpha": 3}}


def test_defaults_are_filled_in():
    assert with_defaults(SCHEMA, {"epochs": 1}) == {
        "epochs": 1, "learning_rate": 5e-5, "model": None, "class_weights": False, "precision": "auto",
        "revision": None, "target_modules": [], "lora": {"r": 8, "dropout": 0.1}}
