"""Every way in which a worker is asked to end, and what the server learns of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

RUNNING = ["event", "status", {"state": "running", "step": "fit"}]


def test_cancel_reaches_the_worker_by_control_and_by_signal(bench):
    job = bench.add_job([["heed_term"], RUNNING, ["hang"]])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    job.cancel = True
    assert agent.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (4, "cancelled")
    assert job.worker_events[-1]["status"] == "cancelled"
    assert bench.jobdir.read("control") == "stop\n"


def test_a_worker_that_ignores_term_is_killed_after_the_grace(bench):
    job = bench.add_job([["ignore_term"], ["spawn"], RUNNING, ["hang"]], grace_seconds=0.3)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    worker = bench.worker
    job.cancel = True
    assert agent.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (137, "cancelled")
    assert worker.group() == []


def test_predictions_of_a_cancelled_run_are_not_sent(bench):
    job = bench.add_job([["ignore_term"], RUNNING, ["wait_control", "stop"], ["predictions", "p\n"], ["exit", 0]])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    job.cancel = True
    assert agent.wait(60) == 0
    assert job.predictions is None
    assert (job.result["exit_code"], job.result["reason"]) == (0, "cancelled")


def test_stop_and_keep_is_said_in_control_and_sends_no_signal(bench):
    job = bench.add_job(
        [["heed_term"], RUNNING, ["wait_control", "keep"], ["predictions", "kept\n"], ["exit", 0]]
    )
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    job.keep = True
    assert agent.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    assert job.predictions == b"kept\n"


def test_cancel_after_stop_and_keep_cancels(bench):
    job = bench.add_job([["heed_term"], RUNNING, ["wait_control", "keep"], ["event", "log", {"msg": "kept"}], ["hang"]])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    job.keep = True
    bench.wait_for_worker_event(msg="kept")
    job.cancel = True
    assert agent.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (4, "cancelled")


def test_410_stops_the_worker_at_once_and_the_result_still_says_so(bench):
    job = bench.add_job([["ignore_term"], RUNNING, ["hang"]], grace_seconds=3600)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    worker = bench.worker
    job.over = True
    assert agent.wait(60) == 0
    assert not worker.is_alive()
    assert (job.result["exit_code"], job.result["reason"]) == (137, "gone")


def test_a_run_that_the_server_knows_no_more_is_over_too(bench):
    bench.add_job([["heed_term"], RUNNING, ["hang"]])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    worker = bench.worker
    bench.intake.jobs.clear()
    assert agent.wait(60) == 0
    assert not worker.is_alive()


def test_max_wall_seconds_stops_a_worker_that_says_nothing_more(bench):
    job = bench.add_job([["ignore_term"], RUNNING, ["hang"]], max_wall_seconds=0.5, grace_seconds=0.2)
    assert bench.start_agent().wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (137, "max-wall")
    error = next(e for e in job.agent_events if e["event"] == "error")
    assert error["code"] == "max_wall"
    assert error["message"] == "The run was stopped after 0.5 seconds (model_training.max_wall_seconds)"


def test_a_worker_without_any_event_is_stopped_too(bench):
    job = bench.add_job([["hang"]], first_event_s=0.3, grace_seconds=0.1, max_wall_seconds=3600)
    assert bench.start_agent().wait(60) == 0
    assert job.result["reason"] == "start-failed"
    assert bench.said("The worker wrote no event in its first 0.3 seconds")


def test_an_agent_that_gets_sigterm_stops_its_worker_and_reports(bench):
    job = bench.add_job([["heed_term"], RUNNING, ["hang"]])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    agent.terminate()
    assert agent.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (4, "agent-stopped")


def test_a_second_signal_does_not_wait_for_the_grace(bench):
    bench.add_job([["ignore_term"], RUNNING, ["hang"]], grace_seconds=3600)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    worker = bench.worker
    agent.send_signal(signal.SIGINT)
    bench.wait_until(lambda: bench.said("the agent was asked to end"), "the first signal")
    agent.send_signal(signal.SIGINT)
    assert agent.wait(60) == 0
    assert not worker.is_alive()


def test_the_end_of_stdin_is_only_a_hint(bench):
    job = bench.add_job([["heed_term"], RUNNING, ["wait_file", "go"], ["predictions", "p\n"], ["exit", 0]])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    agent.stdin.close()
    batches = job.batches
    bench.wait_until(lambda: job.batches > batches + 3, "more heartbeats")
    Path(bench.jobdir.path("go")).touch()
    assert agent.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    agent.stdin = None


def test_a_vanished_terminal_is_nothing(bench):
    job = bench.add_job([["heed_term"], RUNNING, ["wait_file", "go"], ["exit", 0]])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    agent.send_signal(signal.SIGHUP)
    Path(bench.jobdir.path("go")).touch()
    assert agent.wait(60) == 0
    assert job.result["reason"] == "finished"


def test_give_up_stops_the_worker(bench):
    bench.add_job([["heed_term"], RUNNING, ["hang"]], give_up_s=0.6)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    worker = bench.worker
    bench.listener.stop()
    assert agent.wait(60) == 1
    assert not worker.is_alive()
    assert bench.jobdir.read_exit_code("exit_code") == 4
    assert bench.jobdir.read_json("stop.json")["reason"] == "gave-up"
    assert "stopping the worker" in agent.stderr.read().decode()


def test_what_happened_in_the_dark_is_told_by_the_next_agent(bench):
    job = bench.add_job([["heed_term"], RUNNING, ["event", "log", {"msg": "in the dark"}], ["hang"]], give_up_s=0.6)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="log")
    bench.listener.stop()
    assert agent.wait(60) == 1
    bench.new_listener()
    assert bench.start_agent().wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (4, "gave-up")
    assert [e["event"] for e in job.worker_events] == ["status", "log", "result"]


def test_finish_alone_leaves_the_worker_and_goes_on_trying(bench):
    job = bench.add_job(
        [["forget_stdin"], RUNNING, ["wait_file", "go"], ["predictions", "alone\n"], ["exit", 0]],
        give_up_s=0.3, on_disconnect="finish",
    )
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    bench.listener.stop()
    bench.wait_until(lambda: _silent(agent), "a line about the silence")
    Path(bench.jobdir.path("go")).touch()
    bench.wait_until(lambda: bench.jobdir.read_exit_code("exit_code") is not None, "the worker's end")
    assert agent.poll() is None
    bench.new_listener()
    messenger = bench.start_agent()
    assert messenger.greeting == "attached"
    assert agent.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    assert job.predictions == b"alone\n"


def _silent(agent):
    os.set_blocking(agent.stderr.fileno(), False)
    return b"no answer from the server" in (agent.stderr.read() or b"")


def test_a_worker_that_stopped_itself_is_quoted(bench):
    """Its agent was gone for too long, and the next one comes when it is over."""
    why = "the agent that started this worker is gone"
    job = bench.add_job([
        ["forget_stdin"], RUNNING, ["wait_file", "go"], ["event", "result", {"status": "cancelled", "reason": why}],
        ["exit", 4],
    ])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    agent.kill()
    agent.wait()
    Path(bench.jobdir.path("go")).touch()
    bench.wait_until(lambda: bench.jobdir.read_exit_code("exit_code") is not None, "the worker's end")
    assert bench.start_agent().wait(60) == 0
    error = next(e for e in job.agent_events if e["event"] == "error")
    assert error["message"] == job.result["reason"] == f"The worker on {os.uname().nodename} stopped itself: {why}"
    assert "on_disconnect" in error["install_hint"]


def test_a_worker_that_is_lost_is_said_to_be_lost(bench):
    job = bench.add_job([["ignore_term"], ["forget_stdin"], RUNNING, ["hang"]])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    agent.kill()
    agent.wait()
    bench.worker.kill_group()
    assert bench.start_agent().wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (None, "worker-lost")
