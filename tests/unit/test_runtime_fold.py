"""What events say, and what they cannot make us say."""

from hypothesis import given
from hypothesis import strategies as st
from potato_training.runtime.fold import fold
from potato_training.runtime.known import _of_this_attempt
from potato_training.runtime.slurm.words import job_words

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
KINDS = st.sampled_from(["status", "progress", "metric", "log", "artifact", "result", "error", "martian", None, 3])


def test_status_moves_and_tells():
    news = fold("worker", [
        {"event": "status", "state": "running", "step": "training", "host": "node07", "python": "3.11.2",
         "device": "cpu", "threads": 2},
    ])
    assert news.moves == [(1, "running", "training")]
    assert news.facts["machine"]["host"] == "node07"
    assert any("node07" in line for line in news.log)


def test_what_a_run_costs_the_scheduler_is_in_its_record():
    news = fold("agent", [
        {"event": "status", "scheduler_job": "4242", "node": "node07", "scheduler_calls": {"sbatch": 1}},
        {"event": "log", "msg": "calls: ...", "scheduler_calls": {"sbatch": 1, "squeue": 2}},
    ])
    assert job_words(news.facts) == "SLURM job 4242 on node07; calls: sbatch 1, squeue 2"
    assert job_words({}) == ""


@given(JSON)
def test_whatever_a_record_says_of_a_job_it_can_be_shown(value):
    facts = fold("agent", [{"event": "status", "scheduler_job": "1", "scheduler_calls": value, "node": value}]).facts
    assert job_words(facts).startswith("SLURM job 1")


def test_an_error_of_an_earlier_attempt_tells_nothing_of_the_end():
    worker = fold("worker", [{"event": "error", "attempt": 1, "message": "stopped"}]).facts["error"]
    agent = fold("agent", [{"event": "error", "attempt": 1, "message": "the time limit"}]).facts["error"]
    assert [_of_this_attempt(worker, n) for n in (1, 2)] == [worker, None]
    assert _of_this_attempt(agent, 2) == agent
    assert _of_this_attempt(None, 2) is None


def test_a_far_side_cannot_name_an_end_or_a_state_of_ours():
    for state in ("succeeded", "failed", "cancelled", "queued", "fetching", "cancelling", "root", None, ["running"]):
        assert fold("worker", [{"event": "status", "state": state}]).moves == []


def test_only_the_worker_gives_a_result():
    result = {"event": "result", "status": "succeeded", "predictions_sha256": "0" * 64}
    assert "result" in fold("worker", [result]).facts
    assert "result" not in fold("agent", [result]).facts


def test_texts_are_one_bounded_line():
    news = fold("worker", [{"event": "log", "level": "warning", "msg": "a\x1b[31m\nb" + "x" * 9000}])
    (line,) = news.log
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 2100
    assert news.warnings


def test_numbers_must_be_numbers():
    news = fold("worker", [{"event": "progress", "current": "1", "total": True, "phase": ["x"], "eta_s": 1.5}])
    assert news.facts["progress"] == {"phase": "['x']", "current": None, "total": None, "eta_s": 1.5}


@given(st.sampled_from(["worker", "agent"]), st.lists(st.dictionaries(
    st.sampled_from(["state", "step", "host", "gpu", "msg", "level", "name", "value", "metrics", "code", "message",
                     "current", "total", "path", "bytes", "attempt", "status"]), JSON, max_size=6), max_size=5),
       st.lists(KINDS, min_size=5, max_size=5))
def test_no_event_breaks_it(stream, bodies, kinds):
    news = fold(stream, [{**body, "event": kind} for body, kind in zip(bodies, kinds, strict=False)])
    for attempt, state, step in news.moves:
        assert attempt >= 1
        assert state in ("", "preparing", "waiting", "running", "evaluating")
        assert "\n" not in step
    for line in news.log:
        assert "\n" not in line


def test_what_was_counted_is_forgotten_with_its_step():
    counted = {"event": "progress", "phase": "calibrate", "current": 5, "total": 5}
    status = {"event": "status", "state": "evaluating", "step": "scoring held-out items"}
    assert fold("worker", [counted, status]).facts["progress"] is None
    assert fold("worker", [status, counted]).facts["progress"]["current"] == 5
    assert fold("worker", [counted, {"event": "status", "host": "node07"}]).facts["progress"]["current"] == 5
    assert "progress" not in fold("agent", [status]).facts, "an agent's steps are about the way to the worker"
