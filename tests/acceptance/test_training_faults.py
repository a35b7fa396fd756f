"""What goes wrong with a run: right end, right reason, nothing left behind, and the next run starts."""

from __future__ import annotations

import os
import signal
import time

import pytest

LONG = {"steps": 100000, "step_seconds": 0.05}


def works_again(study):
    """The next run on the same project goes through."""
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    study.nothing_is_left()


# --- cancelling -----------------------------------------------------------------------------------


def test_ctrl_c_cancels_the_run(study):
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    process.send_signal(signal.SIGINT)
    output, code = study.finish(process)
    assert code == 130
    assert "cancelling" in output
    assert study.ended(run_id).state == "cancelled"
    works_again(study)


def test_ctrl_c_twice_stops_watching_and_the_run_is_cancelled_all_the_same(study):
    study.configure(grace_seconds=2)
    process, run_id = study.train("test-stubborn")
    study.reaches(run_id, "running")
    process.send_signal(signal.SIGINT)
    study.wait_until(lambda: study.run(run_id).wish == "cancel", "the wish")
    process.send_signal(signal.SIGINT)
    _, code = study.finish(process)
    assert code == 130
    assert study.ended(run_id).state == "cancelled"
    study.nothing_is_left()


def test_cancel_from_another_terminal(study):
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    assert study.potato("training", "cancel", run_id).returncode == 0
    _, code = study.finish(process)
    assert code == 1
    assert study.ended(run_id).state == "cancelled"
    again = study.potato("training", "cancel", run_id)
    assert again.returncode == 1
    assert f"run {run_id} is over: cancelled" in again.stderr
    works_again(study)


def test_cancel_while_queued_touches_nobody_else(study):
    first, first_id = study.train("test-slow", **LONG)
    study.reaches(first_id, "running")
    second, second_id = study.train("test-quick")
    study.wait_until(lambda: study.run(second_id).step == f"waits for run {first_id}", "what it waits for")
    assert f"waits for run {first_id}" in study.potato("training", "runs", check=True).stdout
    study.potato("training", "cancel", second_id, check=True)
    assert study.finish(second)[1] == 1
    assert (study.run(second_id).state, study.run(second_id).step) == ("cancelled", "")
    assert study.run(first_id).state == "running"
    study.potato("training", "cancel", first_id, check=True)
    study.finish(first)
    study.nothing_is_left()


@pytest.mark.parametrize("trainer", ["test-silent", "test-stubborn"])
def test_a_worker_that_does_not_listen_is_cancelled_once_the_grace_is_over(study, trainer):
    study.configure(grace_seconds=2)
    process, run_id = study.train(trainer)
    study.reaches(run_id, "running")
    study.wait_until(lambda: study.processes("worker --spec"), "the worker")
    study.potato("training", "cancel", run_id, check=True)
    study.finish(process)
    ended = study.ended(run_id)
    assert ended.state == "cancelled"
    took = ended.ended - ended.facts["timings"]["cancelling"]
    assert took < 2 + 30, "the end never waits for the far side"
    works_again(study)


def test_a_second_cancel_changes_nothing(study):
    study.configure(grace_seconds=4)
    process, run_id = study.train("test-stubborn")
    study.wait_until(lambda: "deaf" in study.log(run_id), "the worker's word")
    study.potato("training", "cancel", run_id, check=True)
    until = study.wait_until(lambda: study.run(run_id).facts.get("cancel_until"), "the cancel's end")
    study.potato("training", "cancel", run_id, check=True)
    study.finish(process)
    assert study.run(run_id).facts["cancel_until"] == until
    study.nothing_is_left()


# --- limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", ["test-silent", "test-stubborn"])
def test_max_wall_seconds_ends_a_worker_that_prints_nothing(study, trainer):
    study.configure(max_wall_seconds=2, grace_seconds=1)
    ran = study.potato("training", "run", "--trainer", trainer)
    assert ran.returncode == 1
    assert "The run was stopped after 2 seconds (model_training.max_wall_seconds)" in ran.stdout
    works_again(study)


def test_max_wall_seconds_holds_also_when_the_agent_does_not_keep_it(study):
    study.configure(max_wall_seconds=1, grace_seconds=1)
    study.bounds(wall_slack_s=0.5)
    process, run_id = study.train("test-silent")
    study.reaches(run_id, "running")
    os.kill(study.agent(), signal.SIGSTOP)
    output, code = study.finish(process)
    assert code == 1
    assert "The run was stopped after 1 seconds" in output
    works_again(study)


def test_memory_above_the_limit_ends_the_run_with_that_reason(study):
    study.configure(max_ram_mb=200)
    ran = study.potato("training", "run", "--trainer", "test-hog", "--param", "megabytes=600")
    assert ran.returncode == 1
    assert "max_ram_mb" in ran.stdout
    works_again(study)


def test_predictions_above_the_limit_fail_with_that_reason(study):
    study.configure(max_predictions_mb=0.0001)
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 1
    assert "The predictions are larger than 0.0001 MB (model_training.max_predictions_mb)" in ran.stdout
    study.configure(max_predictions_mb=512)
    works_again(study)


# --- trainers that end badly ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raise", "the test trainer was told to raise"),
        ("refuse", "the test trainer refuses"),
        ("exit", ""),
        ("segfault", "killed by signal 11"),
        ("kill", "most likely the host ran out of memory"),
        ("import", "could not be imported"),
        ("full", "no space"),
    ],
)
def test_a_trainer_that_ends_badly_fails_with_its_reason(study, how, reason):
    ran = study.potato("training", "run", "--trainer", "test-crash", "--param", f"how={how}")
    assert ran.returncode == 1
    assert "failed: " in ran.stdout
    end = next(line for line in ran.stdout.splitlines() if line.startswith("failed: "))
    assert reason.lower() in end.lower()
    assert "Traceback" not in ran.stdout
    assert not study.places.prelabels.exists()
    study.nothing_is_left()


def test_a_failed_run_leaves_the_published_predictions_of_the_good_one(study):
    study.potato("training", "run", "--trainer", "test-quick", check=True)
    before = study.places.prelabels.read_bytes()
    assert study.potato("training", "run", "--trainer", "test-crash").returncode == 1
    assert study.places.prelabels.read_bytes() == before


def test_what_a_trainer_prints_does_not_break_the_stream(study):
    assert study.potato("training", "run", "--trainer", "test-chatty").returncode == 0


# --- killed processes ---------------------------------------------------------------------------------------


@pytest.mark.sample("queued-9", "building-1", "running-15", "running-9")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("state", ["queued", "building", "running"])
def test_the_run_goes_on_when_the_command_is_killed(study, number, state):
    process, run_id = study.train("test-slow", steps=30, step_seconds=0.02)
    if state == "running":
        study.reaches(run_id, "running", "evaluating", "fetching", "succeeded")
    process.send_signal(number)
    output, code = study.finish(process)
    if study.run(run_id).state == "queued":  # killed before it could start a supervisor: the next one does
        study.potato("training", "supervise", check=True)
    assert study.ended(run_id).state == "succeeded"
    if number == signal.SIGTERM and code == 143:
        assert "the run goes on" in output
    study.nothing_is_left()


def test_a_killed_agent_is_replaced_and_hands_in_what_is_there(study):
    process, run_id = study.train("test-slow", steps=100, step_seconds=0.05)
    study.reaches(run_id, "running")
    worker = study.worker()
    os.kill(study.agent(), signal.SIGKILL)
    output, code = study.finish(process)
    assert code == 0, output
    assert "starting another on its job directory" in output
    assert [e["pid"] for e in study.events(run_id) if "pid" in e] == [worker], "the worker went on"
    works_again(study)


def test_a_worker_whose_agents_are_gone_for_good_ends_by_itself(study):
    study.configure(grace_seconds=2)
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    process.kill()
    os.kill(study.supervisor(), signal.SIGKILL)
    os.kill(study.agent(), signal.SIGKILL)
    study.wait_until(lambda: not study.processes(), "the worker's end")
    study.potato("training", "supervise", check=True)
    assert study.run(run_id).state == "failed"
    assert "stopped" in study.run(run_id).reason
    works_again(study)


def test_a_killed_worker_fails_the_run(study):
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    os.kill(study.worker(), signal.SIGKILL)
    output, code = study.finish(process)
    assert code == 1
    assert "was killed: most likely the host ran out of memory" in output
    works_again(study)


def test_a_silent_agent_fails_the_run_and_is_ended(study):
    study.bounds(heartbeat_timeout_s=2)
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    agent = study.agent()
    os.kill(agent, signal.SIGSTOP)
    output, code = study.finish(process)
    assert code == 1
    assert "No word from the agent on this machine for 2 seconds" in output
    study.nothing_is_left()
    works_again(study)


def test_a_machine_that_was_asleep_blames_nobody(study):
    """As when a laptop's lid was closed for longer than the heartbeat allows."""
    study.bounds(heartbeat_timeout_s=2, slept_s=0.5)
    process, run_id = study.train("test-slow", steps=60, step_seconds=0.05)
    study.reaches(run_id, "running")
    asleep = [study.supervisor(), study.agent()]
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    morning = time.monotonic() + 3
    study.wait_until(lambda: time.monotonic() > morning, "the morning")
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    output, code = study.finish(process)
    assert code == 0, output
    study.nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_supervisor_that_ends_in_the_middle_is_replaced_and_nothing_is_lost(study, number):
    process, run_id = study.train("test-slow", steps=100, step_seconds=0.05)
    study.reaches(run_id, "running")
    first = study.supervisor()
    os.kill(first, number)
    output, code = study.finish(process)
    assert code == 0, output + study.places.supervisor_log.read_text()
    current = [e["current"] for e in study.events(run_id) if e["event"] == "progress" and e.get("phase") == "fit"]
    assert current == sorted(set(current))
    assert sum(e["event"] == "result" for e in study.events(run_id)) == 1
    works_again(study)


def test_a_run_left_alone_with_its_supervisor_killed_is_taken_up_by_the_next_command(study):
    process, run_id = study.train("test-slow", steps=60, step_seconds=0.05)
    study.reaches(run_id, "running")
    process.kill()
    os.kill(study.supervisor(), signal.SIGKILL)
    study.wait_until(lambda: not study.processes("runtime.supervisor"), "the supervisor's end")
    assert study.run(run_id).state == "running"
    study.potato("training", "supervise", check=True)
    assert study.run(run_id).state == "succeeded"
    study.nothing_is_left()


def test_everything_killed_at_once_ends_with_a_reason(study):
    """As after a power cut: the job directory is there, no process is."""
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    process.kill()
    for pid in [*study.processes("runtime.supervisor"), *study.processes("worker.agent"),
                *study.processes("worker --spec")]:
        os.kill(pid, signal.SIGKILL)
    study.wait_until(lambda: not study.processes(), "their end")
    study.potato("training", "supervise", check=True)
    run = study.run(run_id)
    assert run.state == "failed"
    assert "left no exit code" in run.reason
    works_again(study)


def test_a_run_whose_job_directory_is_gone_says_that_the_server_stopped(study):
    import shutil

    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    process.kill()
    for word in ("runtime.supervisor", "worker.agent", "worker --spec"):
        for pid in study.processes(word):
            os.kill(pid, signal.SIGKILL)
    study.wait_until(lambda: not study.processes(), "their end")
    shutil.rmtree(study.places.job_dir(run_id))
    study.potato("training", "supervise", check=True)
    assert study.run(run_id).reason == "The server stopped during this run"
    works_again(study)


def test_a_job_directory_that_is_removed_fails_the_run_and_its_processes_are_ended(study):
    import shutil

    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    study.wait_until(lambda: "worker" in study.store().owed(run_id), "the worker written down")
    folder = study.places.job_dir(run_id)  # what is being written into it keeps it for another round
    study.wait_until(lambda: shutil.rmtree(folder, ignore_errors=True) or not folder.exists(), "the removal")
    output, code = study.finish(process)
    assert code == 1
    assert "The run's job directory is gone" in output
    works_again(study)


@pytest.mark.parametrize("content", ["null", "[]", '{"socket": 5}', "\0", '{"socket": "/tmp/../etc"}'])
def test_whatever_stands_in_the_supervisors_note_the_next_one_starts(study, content):
    study.places.prepare()
    (study.places.root / "supervisor.json").write_text(content)
    assert study.potato("training", "run", "--trainer", "test-quick").returncode == 0


def test_a_supervisor_that_cannot_start_is_told_in_one_line_and_not_tried_for_ever(study):
    study.places.prepare()
    (study.places.root / "supervisor.json").mkdir()
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 1
    assert "the project's supervisor did not start" in ran.stderr
    assert "IsADirectoryError" in ran.stderr
    assert study.places.supervisor_log.read_text().count("Traceback") <= 3


def test_a_ruined_ledger_is_told_in_one_line(study):
    study.potato("training", "run", "--trainer", "test-quick", check=True)
    study.wait_until(lambda: not study.processes(), "the supervisor's end")
    study.places.store.write_bytes(os.urandom(8192))
    for command in (["runs"], ["run"], ["show", "last"], ["cancel", "last"]):
        ran = study.potato("training", *command)
        assert ran.returncode == 1
        assert "training/store.sqlite: " in ran.stderr
        assert "Traceback" not in ran.stderr


STATES = ["building", "connecting", "preparing", "running", "evaluating", "fetching", "succeeded", "settled"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", STATES)
def test_a_supervisor_killed_at_any_step_changes_nothing_about_the_end(study, when, state, tmp_path):
    mark = tmp_path / "struck"
    study.env.update(POTATO_FAULT=f"{when}:{state}", POTATO_FAULT_MARK=str(mark))
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert mark.exists(), "the fault was never reached"
    assert ran.returncode == 0, ran.stdout + ran.stderr + study.places.supervisor_log.read_text()
    (run,) = study.runs()
    assert (run.state, run.settled) == ("succeeded", True)
    assert study.places.prelabels.exists()
    study.nothing_is_left()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_supervisor_killed_while_cancelling_is_replaced_and_the_run_cancelled(study, when, tmp_path):
    mark = tmp_path / "struck"
    study.env.update(POTATO_FAULT=f"{when}:cancelling", POTATO_FAULT_MARK=str(mark))
    process, run_id = study.train("test-slow", **LONG)
    study.reaches(run_id, "running")
    study.potato("training", "cancel", run_id, check=True)
    study.finish(process)
    assert mark.exists()
    assert study.ended(run_id).state == "cancelled"
    study.nothing_is_left()
