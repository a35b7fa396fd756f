"""Reading a growing file of events: whatever the cuts, every line once, in order, with its number."""

from __future__ import annotations

import json
import os

from hypothesis import given
from hypothesis import strategies as st
from potato_training.worker.agent_tail import Tail
from potato_training.worker.protocol import MAX_EVENT_BYTES


def line(**fields):
    return json.dumps({"event": "log", **fields}, ensure_ascii=False).encode() + b"\n"


def read_all(tail, **options):
    found = []
    while lines := tail.poll(**options):
        found += lines
    return found


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


def test_a_file_that_is_not_there_yet_has_no_lines(tmp_path):
    tail = Tail(str(tmp_path / "events.jsonl"))
    assert tail.poll() == []
    assert tail.at_end()


@given(
    texts=st.lists(st.text(st.characters(blacklist_categories=["Cs"]), max_size=20), max_size=12),
    cuts=st.lists(st.integers(0, 2000), max_size=12),
    most=st.integers(1, 5),
)
def test_every_line_once_and_in_order_whatever_the_cuts(tmp_path_factory, texts, cuts, most):
    path = tmp_path_factory.mktemp("tail") / "events.jsonl"
    whole = b"".join(line(msg=text) for text in texts)
    places = sorted({min(cut, len(whole)) for cut in cuts} | {len(whole)})
    tail = Tail(str(path))
    found, start = [], 0
    for place in places:  # also in the middle of a character
        append(path, whole[start:place])
        found += read_all(tail, most=most)
        start = place
    assert [entry.event["msg"] for entry in found] == texts
    assert [entry.number for entry in found] == list(range(len(texts)))
    assert b"".join(entry.raw + b"\n" for entry in found) == whole
    assert tail.at_end()
    assert tail.strange == []


@given(st.binary(max_size=300))
def test_any_bytes_give_as_many_lines_as_they_have_newlines(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("tail") / "events.jsonl"
    path.write_bytes(data)
    found = read_all(Tail(str(path)), final=True)
    tail_is_torn = bool(data) and not data.endswith(b"\n")
    assert len(found) == data.count(b"\n") + tail_is_torn
    for entry in found:
        assert json.loads(entry.raw) == entry.event
        assert isinstance(entry.event["event"], str)


def test_half_a_line_waits_for_its_other_half(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = Tail(str(path))
    append(path, line(n=1) + b'{"event":"st')
    assert [entry.event["n"] for entry in tail.poll()] == [1]
    assert tail.poll() == []
    append(path, b'ep","n":2}\n')
    assert [entry.event["n"] for entry in tail.poll()] == [2]


def test_a_bad_line_counts_only_when_another_follows(tmp_path):
    """Shared storage may show zeros where a write is still on its way."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(n=1) + b"\0\0\0\0\n")
    tail = Tail(str(path), attempt=3)
    assert [entry.number for entry in tail.poll()] == [0]
    with open(path, "r+b") as file:  # the write has arrived
        file.seek(len(line(n=1)))
        file.write(b"1234")
    assert tail.poll() == []
    append(path, line(n=3))
    second, third = tail.poll()
    assert second.event["msg"] == "events.jsonl line 2 unreadable, skipped"
    assert (second.event["level"], second.event["attempt"]) == ("warning", 3)
    assert (third.number, third.event["n"]) == (2, 3)


def test_at_the_end_the_torn_tail_is_tried_once(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(n=1) + line(n=2)[:-1])
    tail = Tail(str(path))
    assert len(tail.poll()) == 1
    assert [entry.event["n"] for entry in tail.poll(final=True)] == [2]
    assert tail.poll(final=True) == []
    path.write_bytes(b'{"event":"lo')
    tail = Tail(str(path))
    assert tail.poll(final=True)[0].event["msg"] == "events.jsonl line 1 breaks off, skipped"


def test_no_number_that_json_does_not_have(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":"metric","value":-Infinity,"other":[NaN]}\n' + line())
    entry = Tail(str(path)).poll()[0]
    assert entry.event == {"event": "metric", "value": None, "other": [None], "nonfinite": "-inf"}
    assert b"NaN" not in entry.raw


def test_a_long_event_is_cut_and_marked(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(msg="x" * 100_000, step=7) + line(many=list(range(100_000)), status="succeeded"))
    first, second = read_all(Tail(str(path)), final=True)
    assert len(first.raw) <= MAX_EVENT_BYTES and len(second.raw) <= MAX_EVENT_BYTES
    assert first.event["cut"] is True and first.event["step"] == 7
    assert second.event == {"cut": True, "event": "log", "status": "succeeded"}


def test_a_line_without_end_takes_no_memory(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = Tail(str(path))
    append(path, line(n=1) + b'{"event":"log","msg":"')
    found = read_all(tail)
    for _ in range(5):
        append(path, b"x" * 1_000_000)
        found += read_all(tail)
    append(path, b'"}\n' + line(n=3))
    found += read_all(tail)
    assert [entry.number for entry in found] == [0, 1, 2]
    assert found[1].event["msg"] == "events.jsonl line 2 is longer than 1 MiB, skipped"
    assert found[2].event["n"] == 3


def test_a_file_that_was_cut_goes_on_with_the_next_numbers(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(line(n=n) for n in range(10)))
    tail = Tail(str(path))
    assert len(tail.poll()) == 10
    os.truncate(path, len(line(n=0)) * 3 + 5)
    assert tail.poll() == []
    assert tail.strange == ["events.jsonl became shorter"]
    append(path, b"\n" + line(n=10))
    assert [(entry.number, entry.event.get("n")) for entry in read_all(tail)] == [(10, None), (11, 10)]


def test_a_file_that_was_replaced_is_read_from_its_start(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(line(n=n) for n in range(10)))
    tail = Tail(str(path))
    assert len(tail.poll()) == 10
    other = tmp_path / "other"
    other.write_bytes(line(new=1) + line(new=2))
    other.replace(path)
    assert [(entry.number, entry.event["new"]) for entry in read_all(tail)] == [(10, 1), (11, 2)]
    assert tail.strange == ["events.jsonl was replaced; reading it from its start"]


def test_a_copy_in_its_place_is_no_change(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(line(n=n) for n in range(100)))
    tail = Tail(str(path))
    assert len(tail.poll()) == 100
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes() + line(n=100))
    other.replace(path)
    assert [entry.event["n"] for entry in read_all(tail)] == [100]
    assert tail.strange == []
