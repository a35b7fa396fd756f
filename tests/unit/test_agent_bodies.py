"""The server's checks of bodies and the published JSON Schema say the same, whatever is sent."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.runtime import agent_bodies
from potato_training.runtime.protocol_types import ProtocolError
from potato_training.worker import protocol

SCHEMA = json.loads((Path(__file__).parents[2] / "schema" / "agent.schema.json").read_text("utf-8"))

text = st.text(st.characters(blacklist_categories=["Cs"]), max_size=5)
anything = st.one_of(
    st.none(), st.booleans(), st.integers(-300, 300), st.integers(), text, st.just("a"), st.just("worker"),
    st.just("x" * 200), st.just("x" * 5000), st.lists(st.none(), max_size=3), st.just([None] * 65),
    st.lists(st.fixed_dictionaries({"event": st.one_of(text, st.just("e" * 65), st.none())}), max_size=3),
    st.dictionaries(text, text, max_size=3), st.just({"n" * 200: ""}), st.just({"n": "v" * 200}), st.just({"n": 1}),
)


def bodies(*fields):
    return st.fixed_dictionaries({}, optional=dict.fromkeys((*fields, "unknown"), anything))


def taken(check, *arguments):
    try:
        check(*arguments)
    except ProtocolError as error:
        assert error.status in (400, 413)
        assert error.body["error"]
        return False
    return True


def allowed(name, body):
    schema = {"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]}
    return jsonschema.Draft202012Validator(schema).is_valid(body)


@given(bodies("agent_id", "hostname", "agent_version", "python", "gpus"))
def test_claims(body):
    assert taken(agent_bodies.check_claim, body) == allowed("claim", body)


@given(bodies("stream", "seq", "events"))
def test_events(body):
    assert taken(agent_bodies.check_events, body, len(json.dumps(body))) == allowed("events", body)


@given(bodies("exit_code", "reason", "artifact_uri", "software"))
def test_results(body):
    assert taken(agent_bodies.check_result, body) == allowed("result", body)


def test_a_good_one_of_each_is_taken():
    """So that the three above are not all about refusals."""
    assert allowed("claim", {"agent_id": "a", "hostname": "h"})
    assert allowed("events", {"stream": "agent", "seq": 3, "events": [{"event": "log"}]})
    assert allowed("result", {"exit_code": None})


def test_the_bounds_in_the_schema_are_those_of_the_code():
    definitions = SCHEMA["$defs"]
    assert definitions["events"]["properties"]["events"]["maxItems"] == protocol.MAX_EVENTS_PER_BATCH
    assert str(protocol.MAX_BATCH_BYTES) in definitions["events"]["description"]
    assert str(protocol.MAX_MESSAGE_BYTES) in definitions["claim"]["description"]
    assert str(protocol.MAX_EVENT_BYTES) in definitions["events"]["properties"]["events"]["description"]
    reasons = {value for name, value in vars(protocol).items() if name.startswith("REASON_")}
    assert reasons - {protocol.REASON_PROTOCOL} == set(definitions["result"]["properties"]["reason"]["examples"])


@given(st.binary(max_size=200), st.integers(0, 100), st.booleans())
def test_no_bytes_make_reading_fail_in_another_way(data, limit, told):
    pieces = [data[i:i + 7] for i in range(0, len(data), 7)]

    def read(size):
        assert size > 0
        piece = pieces.pop(0) if pieces else b""
        pieces[:0] = [piece[size:]] if piece[size:] else []
        return piece[:size]

    try:
        value, size = agent_bodies.read_json(read, len(data) if told else None, limit)
    except ProtocolError as error:
        assert error.status == 413 if len(data) > limit else error.status == 400
    else:
        assert isinstance(value, dict) and size == len(data) <= limit


@pytest.mark.parametrize("size", [1, 100, 60_000, 65_000, 70_000, 1_000_000])
def test_cutting_leaves_what_fits_alone_and_makes_the_rest_fit(size):
    event = {"event": "result", "status": "succeeded", "metrics": {"m": ["ü" * 10] * (size // 22)}, "n": 1}
    cut = protocol.cut_event(event)
    fits = len(json.dumps(event, ensure_ascii=False).encode()) <= protocol.MAX_EVENT_BYTES
    assert (cut is event) == fits
    assert len(json.dumps(cut, ensure_ascii=False).encode()) <= protocol.MAX_EVENT_BYTES
    assert (cut["status"], cut["n"]) == ("succeeded", 1)
    assert cut.get("cut", False) != fits
