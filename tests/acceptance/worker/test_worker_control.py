"""Stopping: by signal, by the control file, by the agent's absence, by memory."""

import os
import signal
import subprocess
import time

import pytest


def term(job):
    job.process.send_signal(signal.SIGTERM)


def term_twice(job):
    term(job)
    term(job)


def stop_word(job):
    job.control("stop")


def close_stdin(job):
    job.process.stdin.close()


@pytest.mark.parametrize("trainer", ["test-slow", "test-silent"])
@pytest.mark.parametrize("stop", [term, term_twice, stop_word])
def test_a_cancelled_worker_ends_with_the_cancelled_result(make_job, trainer, stop):
    job = make_job(trainer, params={"steps": 100000} if trainer == "test-slow" else {}).start()
    job.until("training 'sentiment'")
    stop(job)
    assert job.end() == 4
    assert job.exit_code == 4
    assert job.last["event"] == "result" and job.last["status"] == "cancelled"
    assert len(job.events("result")) == 1
    assert not (job.dir / "predictions.jsonl").exists()


def test_a_signal_before_the_first_event(make_job):
    job = make_job("test-silent").start()
    time.sleep(0)           # as early as it comes: either not yet masked, and killed, or cancelled
    term(job)
    assert job.end() in (4, -signal.SIGTERM)


def test_stop_and_keep_ends_training_and_succeeds(make_job):
    job = make_job("test-slow", params={"steps": 100000}).start()
    job.until('"phase":"fit"')
    job.control("keep")
    assert job.end() == 0
    assert job.last["status"] == "succeeded" and job.last["kept"] is True
    assert job.last["n_predictions"] == len(job.predictions()) == 34


def test_stop_and_keep_leaves_out_schemes_that_have_no_model_yet(make_job):
    job = make_job("test-slow", schemas=("sentiment", "topics"), params={"steps": 100000}).start()
    job.until('"phase":"fit"')
    job.control("keep")
    assert job.end() == 0
    assert set(job.last["metrics"]) == {"sentiment"}
    assert any("'topics'" in warning for warning in job.logs("warning"))


def test_a_stop_after_a_keep_is_a_stop(make_job):
    job = make_job("test-silent").start()
    job.until("training 'sentiment'")
    job.control("keep")
    job.control("stop")
    assert job.end() == 4


def test_the_worker_ends_when_its_agent_is_gone(make_job):
    job = make_job("test-silent", orphan={"stdin": True}).start()
    job.until("training 'sentiment'")
    close_stdin(job)
    assert job.end() == 4
    assert "agent" in job.last["reason"]


@pytest.mark.parametrize("change", [
    {"orphan": {"stdin": True, "lease_s": 0, "slack_s": 0}, "on_disconnect": "finish"},
    {"orphan": {"stdin": False}},
])
def test_the_worker_finishes_alone_when_it_may(make_job, change):
    job = make_job("test-slow", params={"steps": 30, "step_seconds": 0.1}, **change).start()
    job.until("training 'sentiment'")
    close_stdin(job)
    assert job.process.wait(60) == 0
    assert job.last["status"] == "succeeded"


def test_a_lease_that_nobody_renews_ends_the_worker(make_job):
    job = make_job("test-silent", orphan={"lease_s": 0.5, "slack_s": 0.5}).start()
    assert job.end() == 4
    assert "no sign of the agent" in job.last["reason"]


def test_a_lease_that_is_renewed_keeps_the_worker(make_job, wait_until):
    job = make_job("test-slow", params={"steps": 40}, orphan={"lease_s": 1.0, "slack_s": 1.5}).start()
    count = 0

    def renewed():
        nonlocal count
        count += 1
        (job.dir / "lease.tmp").write_text(str(count))
        (job.dir / "lease.tmp").replace(job.dir / "lease")
        return job.process.poll() is not None
    wait_until(renewed, "the end of the run")
    assert job.end() == 0


def test_code_that_never_lets_go_is_left_to_sigkill(make_job):
    job = make_job("test-stubborn").start()
    job.until("deaf from here on")
    term(job)
    with pytest.raises(subprocess.TimeoutExpired):
        job.process.wait(3)
    os.killpg(job.process.pid, signal.SIGKILL)
    assert job.end() == -signal.SIGKILL
    assert job.exit_code is None


def test_memory_over_its_limit_is_an_end_of_its_own(make_job):
    job = make_job("test-hog", params={"megabytes": 300}, limits={"max_ram_mb": 200})
    assert job.run() == 5
    assert job.exit_code == 5
    assert job.last["event"] == "error" and job.last["message"].startswith("host out of memory")
    assert "max_ram_mb 200" in job.last["message"]


def test_memory_within_its_limit_is_fine(make_job):
    job = make_job("test-hog", params={"megabytes": 20, "seconds": 0}, limits={"max_ram_mb": 2000})
    assert job.run() == 0
