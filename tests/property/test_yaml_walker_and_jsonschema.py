"""The walker and jsonschema, two readers of one schema, held against each other."""

import copy

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from potato_training.schema.check import Report, acknowledged, check_root, config_schema
from potato_training.schema.nodes import node_of
from potato_training.schema.report import as_text
from potato_training.schema.walk import BAD, Walker

SCHEMA = config_schema()
JUDGE = Draft202012Validator(SCHEMA)
TRAINING = SCHEMA["$defs"]["model_training"]

words = st.text(alphabet="ab~-/ =.,:$0123456789é", max_size=12) | st.sampled_from(
    ["auto", "none", "local", "ssh", "stop", "majority", "04:00:00", "16G", "--flag=1", "https://x.example.org/a"])
numbers = st.integers(-5, 100_000) | st.floats(-10, 1e6, allow_nan=False).map(lambda f: round(f, 3))
anything = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6)


def right(schema):
    """Values that fit: the schema's own examples and defaults, and any subset of a mapping's keys."""
    schema = Walker(SCHEMA).resolve(schema)
    if "properties" not in schema:
        return st.sampled_from(schema["examples"] + ([schema["default"]] if "default" in schema else []))
    inner = {key: right(prop) for key, prop in schema["properties"].items() if key != "backends"}
    needed = {key: inner.pop(key) for key in schema.get("required", ())}
    return st.fixed_dictionaries(needed, optional=inner)


entries = st.one_of(*(st.builds(lambda m, t=t: {**m, "type": t}, right(SCHEMA["$defs"][t]))
                      for t in ("ssh", "slurm", "agent")))
rights = st.builds(lambda training, backends: {**training, "backends": backends}, right(TRAINING), st.dictionaries(
    st.sampled_from(["a", "gpu-1", "x.y_z"]), entries, max_size=2))


@st.composite
def trainings(draw):
    """Right ones with up to two places overwritten, removed or added to."""
    training = copy.deepcopy(draw(rights))
    for _ in range(draw(st.integers(0, 2))):
        place = training
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw(st.sampled_from(keys)) if keys else None
            inner = place[key] if keys else None
            if not (isinstance(inner, (dict, list)) and inner and draw(st.booleans())):
                break
            place = inner
        if isinstance(place, dict) and (key is None or draw(st.booleans())):
            place[draw(words)] = draw(anything)
        elif key is not None and draw(st.integers(0, 3)):
            place[key] = draw(anything)
        elif key is not None:
            del place[key]
    return training


def has_numbers_for_texts(raw, read) -> bool:
    """Whether a text was made of an unquoted number or boolean, which jsonschema takes for what it looks like."""
    if isinstance(read, dict) and isinstance(raw, dict):
        return any(has_numbers_for_texts(raw[k], v) for k, v in read.items())
    if isinstance(read, list) and isinstance(raw, list):
        return any(has_numbers_for_texts(a, b) for a, b in zip(raw, read, strict=True))
    return read is BAD or (isinstance(read, str) and not isinstance(raw, str))


@given(trainings())
def test_what_the_walker_accepts_jsonschema_accepts_in_the_types_that_it_made(training):
    walker = Walker(SCHEMA)
    values = walker.walk(node_of(training), TRAINING, "model_training", "model_training")
    if not walker.findings:
        JUDGE.validate({"model_training": values})


@given(trainings())
def test_what_jsonschema_accepts_the_walker_accepts(training):
    errors = list(JUDGE.iter_errors({"model_training": training}))
    walker = Walker(SCHEMA)
    walker.walk(node_of(training), TRAINING, "model_training", "model_training")
    if not errors:
        assert not walker.findings


@given(trainings())
def test_what_jsonschema_refuses_the_walker_refuses_or_reads_as_a_text(training):
    errors = list(JUDGE.iter_errors({"model_training": training}))
    walker = Walker(SCHEMA)
    values = walker.walk(node_of(training), TRAINING, "model_training", "model_training")
    if errors and not walker.findings:
        assert has_numbers_for_texts(training, values)


#: What rules stumble over: signs that mean something to a path, a host, a time, a flag or a list of GPUs.
nasty = st.text(alphabet="~/$-:,.= @#\"'\\aA01%\u00e9\x85\n\t", max_size=8) | st.sampled_from(
    ["#SBATCH", "--", "--output", "UNLIMITED", "/tmp", "~/..", "GPU-", "MIG-1", "auto,none", "0,1,0", "1-0:0", "a:1",
     "a@b"])


@st.composite
def nasty_entries(draw):
    kind = draw(st.sampled_from(["ssh", "slurm", "agent"]))
    keys = draw(st.lists(st.sampled_from(sorted(SCHEMA["$defs"][kind]["properties"])), max_size=5))
    value = nasty | st.lists(nasty, max_size=3) | st.dictionaries(nasty | st.sampled_from(["PATH", "HF_TOKEN"]), nasty,
                                                                  max_size=2)
    return {"host": "h", "remote_dir": "/x", **{key: draw(value) for key in keys}, "type": kind}


@given(st.dictionaries(nasty | st.just("a"), nasty_entries() | nasty, max_size=2), trainings())
def test_the_rules_survive_every_value(backends, training):
    if isinstance(training.get("backends"), dict):
        training["backends"].update(backends)
    report = Report("c.yaml")
    entries = ["backends.a", "12 or more characters"]
    report.root = node_of({"model_training": training, "validation": {"acknowledge": entries}})
    check_root(report, ("mine",))
    for finding in acknowledged(report).findings:
        assert as_text(report, strict=True).count("\n") == len(report.findings) + len(report.acknowledged)
        assert finding.message
