"""The event stream: one line an event, strict JSON, bounded, throttled."""

import json
import math
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.worker import events, protocol


@pytest.fixture
def stream(tmp_path):
    path = tmp_path / "events.jsonl"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield events.EventWriter(fd, attempt=3), path
    os.close(fd)


def read(path):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")
    return [json.loads(line, parse_constant=refuse) for line in path.read_text(encoding="ascii").splitlines()]


@pytest.mark.parametrize(("value", "word"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_what_is_not_finite_becomes_null_and_is_named(stream, value, word):
    writer, path = stream
    writer.emit("metric", split="train", name="loss", value=value, step=4)
    (event,) = read(path)
    assert event["value"] is None and event["nonfinite"] == word and event["attempt"] == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12)


@given(fields=st.dictionaries(st.sampled_from(["a", "b", "c"]), json_values))
def test_any_value_is_one_line_of_strict_json(fields):
    read_fd, write_fd = os.pipe()
    try:
        assert events.EventWriter(write_fd).emit("log", **fields)
        data = os.read(read_fd, 1 << 20)
    finally:
        os.close(read_fd)
        os.close(write_fd)
    assert data.endswith(b"\n") and data.count(b"\n") == 1 and data.isascii()
    json.loads(data, parse_constant=lambda word: pytest.fail(word))


def test_numbers_of_numpy_are_numbers(stream):
    numpy = pytest.importorskip("numpy")
    writer, path = stream
    writer.emit("metric", split="train", name="loss", value=numpy.float32(0.5), step=numpy.int64(7))
    (event,) = read(path)
    assert (event["value"], event["step"]) == (0.5, 7)


def test_progress_comes_at_most_four_times_a_second(stream, monkeypatch):
    writer, path = stream
    now = [100.0]
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    stamps = []
    for n in range(1000):
        before = path.stat().st_size
        writer.progress("fit", n, 1000)
        writer.tick()
        if path.stat().st_size > before:
            stamps.append(now[0])
        now[0] += 0.01
    assert 30 <= len(stamps) <= 40
    assert all(late - early > 1.0 for early, late in zip(stamps, stamps[4:], strict=False))


def test_the_latest_progress_is_written_when_its_time_has_come(stream, monkeypatch):
    writer, path = stream
    now = [100.0]
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    for n in range(10):
        writer.progress("fit", n, 9)
    now[0] += 1
    writer.tick()
    writer.tick()
    assert [e["current"] for e in read(path)] == [0, 9]


def test_progress_of_a_step_that_is_over_is_dropped(stream, monkeypatch):
    writer, path = stream
    now = [100.0]
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    writer.progress("fit", 1, 9)
    writer.progress("fit", 2, 9)
    writer.emit("status", state="evaluating", step="scoring")
    now[0] += 1
    writer.tick()
    assert [e["event"] for e in read(path)] == ["progress", "status"]


@pytest.mark.parametrize("last", ["result", "error"])
def test_nothing_comes_after_the_last_event(stream, monkeypatch, last):
    writer, path = stream
    now = [100.0]
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    writer.progress("fit", 1, 9)
    writer.progress("fit", 2, 9)
    writer.emit(last, status="succeeded")
    now[0] += 1
    writer.tick()
    writer.progress("fit", 3, 9)
    writer.log("info", "late")
    assert [e["event"] for e in read(path)] == ["progress", last]


def test_threads_do_not_mix_their_lines(stream):
    writer, path = stream
    def talk(k):
        for _ in range(50):
            writer.log("info", f"{k} " * 300)
    threads = [threading.Thread(target=talk, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(read(path)) == 400


def matrix(labels, items):
    cells = [[n % labels, (n * 7) % labels, n % 9 + 1] for n in range(items)]
    per_label = {f"label {n}": {"precision": 0.123456789, "recall": 0.1, "f1": 0.1, "n": 3} for n in range(labels)}
    return {"n": items, "accuracy": 0.5, "macro_f1": 0.5, "per_label": per_label, "ece": 0.1,
            "confusion": {"cells": cells}}


@pytest.mark.parametrize("labels", [77, 500, 5000])
def test_a_result_too_long_loses_its_details_and_says_so(stream, labels):
    writer, path = stream
    metrics = {"s": {"val": matrix(labels, 4000), "test": matrix(labels, 4000)}}
    writer.emit("result", status="succeeded", metrics=metrics, label_order={"s": [f"label {n}" for n in range(labels)]},
                n_predictions=5, predictions_sha256="0" * 64, kept=False)
    (event,) = read(path)
    assert len(path.read_bytes()) <= protocol.MAX_EVENT_BYTES
    assert event["cut"] is True and event["status"] == "succeeded" and event["predictions_sha256"] == "0" * 64


def test_the_largest_cells_stay(stream):
    writer, path = stream
    writer.emit("result", status="succeeded", metrics={"s": {"val": matrix(77, 9000)}})
    (event,) = read(path)
    cells = event["metrics"]["s"]["val"]["confusion"]["cells"]
    assert event["cut"] and len(cells) == 4500 and min(c[2] for c in cells) == 5


def test_a_long_message_is_cut(stream):
    writer, path = stream
    writer.log("info", "x" * 1_000_000)
    writer.emit("error", code="c", message="é" * 1_000_000)
    log, error = read(path)
    assert len(log["msg"]) <= events.MAX_MESSAGE and log["msg"].endswith("[... cut off]")
    assert error["code"] == "c" and len(error["message"]) <= 4096


def test_a_torn_line_is_ended_before_the_next(stream, monkeypatch):
    writer, path = stream
    real, calls = os.write, []

    def short(fd, data):
        calls.append(data)
        if len(calls) == 1:
            return real(fd, data[:10])
        return real(fd, data)
    monkeypatch.setattr(events.os, "write", short)
    assert not writer.emit("log", level="info", msg="first")
    assert writer.emit("log", level="info", msg="second")
    torn, whole = path.read_text().splitlines()
    assert json.loads(whole)["msg"] == "second" and len(torn) == 10


def test_a_spare_file_makes_room_for_a_last_event(tmp_path, stream, monkeypatch):
    writer, path = stream
    spare = tmp_path / "spare"
    writer.keep_spare(str(spare))
    assert spare.stat().st_size >= 16 * 1024
    real = os.write

    def full(fd, data):
        if spare.exists():
            raise OSError(28, "No space left on device")
        return real(fd, data)
    monkeypatch.setattr(events.os, "write", full)
    assert writer.emit("error", code="disk_full", message="no space")
    assert read(path)[0]["code"] == "disk_full" and not spare.exists()


def test_standard_output_is_taken_and_appended_to(tmp_path):
    script = (
        "from potato_training.worker.events import EventWriter, take_stdout\n"
        "w = EventWriter(take_stdout()); print('noise', flush=True); import os; os.write(1, b'more noise')\n"
        "open('out', 'a').write('from elsewhere\\n'); w.log('info', 'hello')\n"
    )
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:      # not opened for appending
        subprocess.run([sys.executable, "-c", script], stdout=out, stderr=err, check=True, cwd=tmp_path)
    first, second = (tmp_path / "out").read_text().splitlines()
    assert first == "from elsewhere" and json.loads(second)["msg"] == "hello"
    assert (tmp_path / "err").read_text() == "noise\nmore noise"
