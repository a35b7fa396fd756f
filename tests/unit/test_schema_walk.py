"""The walker over a JSON Schema: its keywords, its coercions, its messages."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from potato_training.schema.check import config_schema
from potato_training.schema.nodes import node_of
from potato_training.schema.reading import parse
from potato_training.schema.walk import ANNOTATIONS, BAD, KEYWORDS, Walker, matches

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"


def walked(schema, text):
    """(value, findings) of the YAML value ``text`` under ``schema``, as the key "k"."""
    root, _ = parse(f"k: {text}\n".encode())
    walker = Walker(schema)
    value = walker.walk(root.get("k"), schema, "k", "k")
    return value, walker.findings


def subschemas(schema):
    yield schema
    for keyword in ("properties", "$defs"):
        for inner in schema.get(keyword, {}).values():
            yield from subschemas(inner)
    for keyword in ("items", "additionalProperties", "propertyNames", "if", "then"):
        if isinstance(schema.get(keyword), dict):
            yield from subschemas(schema[keyword])
    for inner in schema.get("allOf", ()):
        yield from subschemas(inner)


def test_our_schemas_use_only_what_the_walker_knows():
    Draft202012Validator.check_schema(config_schema())
    used = {keyword for schema in subschemas(config_schema()) for keyword in schema if not keyword.startswith("x-")}
    assert used <= KEYWORDS | ANNOTATIONS


def test_the_trainers_schemas_use_only_what_the_walker_knows():
    from potato_training.worker.trainers import catalogue

    for info in catalogue().values():
        Draft202012Validator.check_schema(info.params_schema)
        used = {k for schema in subschemas(info.params_schema) for k in schema if not k.startswith("x-")}
        assert used <= KEYWORDS | ANNOTATIONS, info.name


@pytest.mark.parametrize(("type_", "text", "value"), [
    ("integer", "2.0", 2), ("integer", "90", 90), ("number", "5e-5", 5e-5), ("boolean", "yes", True),
    ("boolean", "OFF", False), ("string", "12:00:00", "12:00:00"), ("string", "yes", "yes"), ("string", "007", "007"),
    ("string", "'~'", "~"), (["integer", "null"], "~", None), (["string", "integer"], "5", "5"), ("array", "[]", []),
    ("object", "{}", {}), (["string", "array"], "[a]", ["a"]),
])
def test_a_text_is_read_as_the_type_that_the_key_wants(type_, text, value):
    got, findings = walked({"type": type_}, text)
    assert not findings
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(("type_", "text"), [
    ("integer", "'2'"), ("integer", "010"), ("integer", "2.5"), ("integer", "true"), ("integer", "~"),
    ("number", ".nan"), ("number", "'.5'"), ("number", "1:30"), ("boolean", "1"), ("boolean", "'true'"),
    ("string", "~"), ("string", ""),
    ("string", "[a]"), ("string", '"a\\nb"'), ("string", '"a\\x85"'), ("array", "a"), ("object", "[a]"),
    ("array", "{}"),
    (["string", "null"], '"a\\0"'),
])
def test_what_is_of_another_type_is_bad(type_, text):
    got, (finding,) = walked({"type": type_}, text)
    assert got is BAD
    assert finding.path == "k"
    assert finding.message


def test_a_pattern_ends_where_the_text_ends():
    assert matches("^[a-z]+$", "ab")
    assert not matches("^[a-z]+$", "ab\n")
    assert matches("b", "abc")
    assert matches(r"\$", "a$\n")


def test_unknown_keys_are_told_beside_wrong_values():
    schema = {"type": "object", "additionalProperties": False, "required": ["z"],
              "properties": {"alpha": {"type": "integer"}, "z": {"type": "string", "examples": ["x"]}}}
    value, findings = walked(schema, "{alpha: x, alhpa: 1}")
    assert value == {"alpha": BAD}
    assert [(f.path, f.message, f.hint) for f in findings] == [
        ("k.alpha", "alpha is x, where a whole number is expected", ""),
        ("k.alhpa", "unknown key 'alhpa'", "did you mean alpha?"),
        ("k.z", "z is missing; it is required", "for instance z: x"),
    ]


def test_defaults_are_filled_in_the_schemas_order_and_never_shared():
    walker = Walker(config_schema())
    schema = config_schema()["$defs"]["model_training"]
    one, two = walker.filled({"retain_runs": 7}, schema), walker.filled({}, schema)
    assert list(one) == list(schema["properties"])
    assert one["retain_runs"] == 7
    assert one["max_ram_mb"] is None
    one["writeback"]["schemas"].append("x")
    one["backends"]["y"] = 1
    assert two["writeback"]["schemas"] == []
    assert walker.filled({}, schema)["backends"] == {}


@pytest.mark.parametrize("config", sorted((CONFIGS / "good").glob("*.yaml")), ids=lambda p: p.stem)
def test_jsonschema_finds_nothing_in_what_the_walker_made_of_a_good_config(config):
    root, _ = parse(config.read_bytes())
    node = root.get("model_training")
    if node is None:
        return
    walker = Walker(config_schema())
    values = walker.walk(node, walker.root["$defs"]["model_training"], "model_training")
    assert not walker.findings
    Draft202012Validator(config_schema()).validate({"model_training": values})


#: Values as JSON, each under one key of an ssh or slurm entry, right and wrong.
PROBES = ["x", "", "-x", "a b", "~", 0, 1, -1, 2.5, 1e9, True, False, None, [], ["x"], [1], [""], {}, {"A": "b"},
          {"1": "b"}, "auto", "stop", "1h", "16G", "--flag", ["--flag=1"], ["-f"], 70000, 0.5]


@pytest.mark.parametrize("kind", ["ssh", "slurm", "agent"])
def test_jsonschema_and_the_walker_judge_every_key_alike(kind):
    """Quoted texts and typed values, so that nothing is read as another type, but for texts written as numbers."""
    schema = config_schema()
    judge = Draft202012Validator(schema)
    base = {"type": kind, "host": "h", "remote_dir": "/x"} if kind != "agent" else {"type": kind}
    if kind == "ssh":
        del base["remote_dir"]
    for key, prop in schema["$defs"][kind]["properties"].items():
        types = Walker(schema).resolve(prop)["type"]
        for probe in PROBES:
            if "string" in types and not isinstance(probe, (str, list, dict)):
                continue
            entry = {**base, key: probe}
            walker = Walker(schema)
            walker.walk(node_of(entry), schema["$defs"]["backend"], "e")
            theirs = [e.message for e in judge.iter_errors({"model_training": {"backends": {"e": entry}}})]
            inner = isinstance(probe, (list, dict)) and any(not isinstance(v, str) for v in (
                probe if isinstance(probe, list) else probe.values()))
            if inner:
                continue
            assert bool(walker.findings) == bool(theirs), (key, json.dumps(probe), theirs, walker.findings)
