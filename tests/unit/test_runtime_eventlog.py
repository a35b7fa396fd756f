"""The event log: numbered lines, nothing twice, no holes, no halves."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.runtime import eventlog
from potato_training.runtime.eventlog import EventLog, Gap, Tail


def events(*numbers):
    return [{"n": n} for n in numbers]


def stored(path):
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def test_a_repeated_batch_adds_nothing(path):
    log = EventLog(path)
    assert log.append(0, events(0, 1)) == (2, events(0, 1))
    assert log.append(0, events(0, 1)) == (2, [])
    assert log.append(1, events(1, 2)) == (3, events(2))
    assert stored(path) == [0, 1, 2]


def test_a_gap_names_the_number_wanted(path):
    log = EventLog(path)
    log.append(0, events(0))
    with pytest.raises(Gap) as caught:
        log.append(5, events(5))
    assert caught.value.wanted == 1
    assert stored(path) == [0]


def test_a_line_that_a_kill_left_half_written_is_cut_off(path):
    EventLog(path).append(0, events(0, 1))
    with path.open("ab") as file:
        file.write(b'{"n": 2, "text": "\xc3')
    assert EventLog(path).append(2, events(2)) == (3, events(2))
    assert stored(path) == [0, 1, 2]


def test_a_second_writer_is_seen(path):
    one, two = EventLog(path), EventLog(path)
    one.append(0, events(0, 1))
    assert two.append(2, events(2))[0] == 3
    assert one.append(3, events(3))[0] == 4
    assert stored(path) == [0, 1, 2, 3]


def test_nan_is_refused_and_nothing_written(path):
    log = EventLog(path)
    with pytest.raises(ValueError, match="JSON compliant"):
        log.append(0, [{"loss": float("nan")}])
    assert path.read_bytes() == b""


def test_the_file_is_for_the_owner_only(path):
    EventLog(path).append(0, events(0))
    assert path.stat().st_mode & 0o077 == 0


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=12))
def test_whatever_is_sent_the_file_holds_each_number_once_in_order(tmp_path_factory, batches):
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    path.touch()
    log = EventLog(path)
    for seq, count in batches:
        try:
            log.append(seq, events(*range(seq, seq + count)))
        except Gap as gap:
            assert gap.wanted < seq
    found = stored(path)
    assert found == list(range(len(found)))


def test_a_tail_gives_whole_lines_only_and_each_once(path):
    tail = Tail(path)
    assert tail.lines() == []
    path.write_bytes('{"n": 1}\n{"n": "é'.encode()[:-1])
    assert tail.events() == [{"n": 1}]
    path.write_bytes('{"n": 1}\n{"n": "é"}\nnot json\n[1]\n'.encode())
    assert tail.events() == [{"n": "é"}]
    path.write_bytes(b'{"n": 9}\n')
    assert tail.events() == [{"n": 9}]


def test_nobodys_events_fill_the_disk(path, monkeypatch):
    """What is too much keeps its number and nothing else; the end of the run still has room, up to a bound as well."""
    monkeypatch.setattr(eventlog, "MOST_BYTES", 20_000)
    log, metric = EventLog(path), {"event": "metric", "name": "x" * 100}
    result, seq = {"event": "result", "status": "succeeded"}, 0
    for _ in range(20):
        seq, fresh = log.append(seq, [metric] * 50)
    assert seq == 1000
    assert fresh == [{}] * 50, "nor is anything of them in the record or the run's log"
    size = path.stat().st_size
    assert size < 20_000 + 1000 * 3 + 200
    assert log.append(seq, [result]) == (1001, [result])
    for n in range(1001, 3000):
        log.append(n, [{"event": "error", "message": "x" * 100}])
    assert path.stat().st_size < 40_000 + 3000 * 3
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(told) == 3000
    assert [event for event in told if event.get("event") == "log"] == [eventlog._TOO_MANY]
    assert log.append(0, [metric] * 3000) == (3000, []), "a repeated batch still adds nothing"
