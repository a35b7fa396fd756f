"""What goes wrong on the way to a host: killed processes, cut links, restarts. Right end, nothing left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

LONG = {"steps": 100000, "step_seconds": 0.05}
SOME = {"steps": 120, "step_seconds": 0.05}


def strike(pids, number=signal.SIGKILL):
    assert pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def pause(study, seconds):
    until = time.monotonic() + seconds
    study.wait_until(lambda: time.monotonic() > until, "the time")


def goes_on(study, process, run_id):
    """The run ended well, told once and in order, and let go of everything."""
    output, code = study.finish(process)
    assert code == 0, output + study.log(run_id) + study.places.supervisor_log.read_text()
    steps = [e["current"] for e in study.events(run_id) if e["event"] == "progress" and e.get("phase") == "fit"]
    assert steps == sorted(set(steps))
    assert sum(e["event"] == "result" for e in study.events(run_id)) == 1
    assert study.ended(run_id).state == "succeeded"
    study.nothing_is_left()
    return output


def runs(study, **params):
    process, run_id = study.train("test-slow", **params)
    study.reaches(run_id, "running")
    return process, run_id


# --- killed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["all", "master", "session"])
def test_killed_ssh_does_not_kill_the_training(remote, which):
    study = remote()
    process, run_id = runs(study, **SOME)
    pids = study.ssh_processes()
    masters = [pid for pid in pids if b"\0-N\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(masters) == 1
    strike({"all": pids, "master": masters, "session": [p for p in pids if p not in masters]}[which])
    output = goes_on(study, process, run_id)
    assert "logging in again" in output
    assert "connected again after" in output
    assert study.run(run_id).facts["connection"]["up"] is True


def test_a_killed_child_of_sshd_does_not_kill_the_training(remote):
    study = remote()
    process, run_id = runs(study, **SOME)
    strike(study.sshd.children())
    assert "connected again after" in goes_on(study, process, run_id)


@pytest.mark.parametrize("on_disconnect", ["stop", "finish"])
def test_a_killed_agent_is_replaced_and_the_worker_goes_on(remote, on_disconnect):
    study = remote(on_disconnect=on_disconnect)
    study.configure(grace_seconds=20)       # half of it is the time for another agent to come
    process, run_id = runs(study, **SOME)
    worker = study.far("worker --spec")
    strike([study.far("worker.agent")])
    goes_on(study, process, run_id)
    assert study.run(run_id).facts["machine"]["pid"] == worker


def test_a_killed_worker_fails_the_run(remote):
    study = remote()
    process, run_id = runs(study, **LONG)
    strike([study.far("worker --spec")])
    output, code = study.finish(process)
    assert code == 1
    assert "The worker on gpu-server was killed: most likely the host ran out of memory" in output
    study.ended(run_id)
    study.nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_supervisor_that_ends_is_replaced_and_nothing_is_lost(remote, number):
    study = remote()
    process, run_id = runs(study, **SOME)
    os.kill(study.supervisor(), number)
    goes_on(study, process, run_id)


STATES = ["building", "connecting", "preparing", "running", "evaluating", "fetching", "succeeded", "settled"]


@pytest.mark.sample("building-before", "connecting-after", "running-after", "fetching-before", "settled-before")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", STATES)
def test_a_supervisor_killed_at_any_step_changes_nothing_about_the_end(remote, when, state, tmp_path):
    study = remote()
    mark = tmp_path / "struck"
    study.env.update(POTATO_FAULT=f"{when}:{state}", POTATO_FAULT_MARK=str(mark))
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert mark.exists(), "the fault was never reached"
    assert ran.returncode == 0, ran.stdout + ran.stderr + study.places.supervisor_log.read_text()
    (run,) = study.runs()
    assert (run.state, run.settled) == ("succeeded", True)
    assert (study.places.run_dir(run.run_id) / "artifacts" / "sentiment" / "shares.json").exists()
    study.nothing_is_left()


def test_everything_killed_at_once_is_fetched_or_ends_with_a_reason(remote):
    study = remote()
    process, run_id = runs(study, **LONG)
    process.kill()
    os.kill(study.supervisor(), signal.SIGKILL)
    strike(study.ssh_processes())
    study.account.kill()
    study.potato("training", "supervise", check=True)
    assert "left no exit code" in study.run(run_id).reason
    study.nothing_is_left()


def test_a_job_directory_that_is_gone_after_a_restart(remote):
    import shutil

    study = remote()
    process, run_id = runs(study, **LONG)
    process.kill()
    os.kill(study.supervisor(), signal.SIGKILL)
    study.account.kill()
    shutil.rmtree(study.jobs / run_id)
    study.potato("training", "supervise", check=True)
    assert study.run(run_id).reason == "The server stopped during this run"
    study.nothing_is_left()


# --- stopped --------------------------------------------------------------------------------------


def test_a_stopped_agent_is_silent_and_ended(remote):
    study = remote(heartbeat_timeout_s=4)
    process, run_id = runs(study, **LONG)
    os.kill(study.far("worker.agent"), signal.SIGSTOP)
    output, code = study.finish(process)
    assert code == 1
    assert "No word from the agent on gpu-server for 4 seconds" in output
    study.ended(run_id)
    study.nothing_is_left()


@pytest.mark.parametrize("who", ["ssh", "sshd"])
def test_a_stopped_connection_is_replaced(remote, who):
    study = remote(heartbeat_timeout_s=12)
    process, run_id = runs(study, steps=400, step_seconds=0.05)
    pids = study.ssh_processes() if who == "ssh" else study.sshd.children()
    strike(pids, signal.SIGSTOP)
    try:
        output = goes_on(study, process, run_id)
    finally:
        strike(pids, signal.SIGCONT)
    assert "connected again after" in output


def test_a_stopped_worker_that_goes_on_is_no_fault(remote):
    study = remote(heartbeat_timeout_s=4)
    process, run_id = runs(study, **SOME)
    worker = study.far("worker --spec")
    os.kill(worker, signal.SIGSTOP)
    pause(study, 6)
    os.kill(worker, signal.SIGCONT)
    goes_on(study, process, run_id)


def test_a_server_that_slept_blames_nobody(remote):
    study = remote(heartbeat_timeout_s=6)
    study.bounds(slept_s=1)
    process, run_id = runs(study, steps=200, step_seconds=0.05)
    supervisor = study.supervisor()
    os.kill(supervisor, signal.SIGSTOP)
    pause(study, 4)
    os.kill(supervisor, signal.SIGCONT)
    goes_on(study, process, run_id)


# --- cut for longer -----------------------------------------------------------------------------------


def test_a_connection_that_stays_away_ends_as_the_message_says(remote):
    study = remote(heartbeat_timeout_s=5)
    process, run_id = runs(study, **LONG)
    study.ssh_config(more="ProxyCommand false")
    strike(study.ssh_processes())
    output, code = study.finish(process)
    assert code == 1
    assert "No word from the agent on gpu-server for 5 seconds" in output
    shown = study.potato("training", "show", "last").stdout
    assert "still to be released" in shown + study.log(run_id)
    # the agent has had no answer for as long, and has stopped its worker by itself
    study.wait_until(lambda: not study.account.processes("potato_training"), "the end of agent and worker")
    study.ssh_config()
    study.ended(run_id)
    study.nothing_is_left()
    # its words had no way to us then
    assert "agent: no answer from the server for" in (study.places.run_dir(run_id) / "agent.log").read_text()


def test_a_host_that_refuses_the_login_is_told_of_at_once_and_not_pestered(remote):
    """Hosts shut out accounts and addresses that knock too often."""
    study = remote(heartbeat_timeout_s=8)
    process, run_id = runs(study, **LONG)
    knocks = study.sshd.said().count("Connection from")
    study.ssh_config(more="PubkeyAuthentication no")
    strike(study.ssh_processes())
    study.wait_until(lambda: "Permission denied" in study.run(run_id).facts.get("connection", {}).get("why", ""), "it")
    shown = study.potato("training", "show", "last").stdout
    assert ": ssh to gpu.example.org failed: Permission denied" in shown
    assert "`ssh gpu.example.org true` must succeed from the server's account" in shown
    output, code = study.finish(process)
    assert code == 1
    assert "still not connected: ssh to gpu.example.org failed: Permission denied" in study.log(run_id)
    assert "`ssh gpu.example.org true` must succeed from the server's account" in output
    run = study.run(run_id)
    assert run.reason == "No word from the agent on gpu-server for 8 seconds"
    assert run.hint.startswith("ssh to gpu.example.org failed: Permission denied; a key that works")
    # once for the run, and once for its release
    assert study.sshd.said().count("Connection from") - knocks <= 2
    os.kill(study.supervisor(), signal.SIGKILL)
    study.ssh_config()
    study.potato("training", "supervise", check=True)
    study.nothing_is_left()


def test_a_host_key_that_is_mended_while_the_run_goes_on(remote, tmp_path):
    study = remote()
    study.bounds(unwelcome_first_s=0.5)
    process, run_id = runs(study, steps=300, step_seconds=0.05)
    (tmp_path / "none").touch()
    config = study.root / "ssh_config"
    before = config.read_text()
    config.write_text(before.replace(f"{study.lab.root}/known_hosts", f"{tmp_path}/none"))
    strike(study.ssh_processes())
    study.wait_until(lambda: "log in once by hand" in study.log(run_id), "the remedy")
    assert study.run(run_id).state == "running"
    config.write_text(before)
    study.wait_until(lambda: study.run(run_id).facts["connection"]["up"], "the connection")
    assert "gpu.example.org" not in study.run(run_id).step, "what it does, and no more how it got there"
    goes_on(study, process, run_id)


def test_a_host_that_is_gone_for_good_keeps_no_supervisor(remote):
    study = remote(heartbeat_timeout_s=4)
    study.bounds(release_give_up_s=1, release_most_s=0.5)
    process, _ = runs(study, **LONG)
    study.ssh_config(more="ProxyCommand false")
    strike(study.ssh_processes())
    assert study.finish(process)[1] == 1
    study.wait_until(lambda: not study.processes(), "the supervisor's end")
    said = "no longer tried, the next supervisor does once more (potato training supervise)"
    for command in (("show", "last"), ("runs",), ("logs", "last")):
        shown = study.potato("training", *command).stdout
        assert "still to be released: " in shown, command
        assert said in shown, command
    looked = study.potato("training", "check", "gpu-server", "--trainer", "test-quick")
    assert f"still to be released: {study.runs()[0].run_id} ssh to gpu.example.org failed: " in looked.stdout
    assert "  `potato training supervise config.yaml` asks the host once more" in looked.stdout
    tries = study.store().releases()[0].tries
    study.potato("training", "supervise", check=True)
    assert study.store().releases()[0].tries == tries + 1
    study.ssh_config()
    study.potato("training", "supervise", check=True)
    assert study.store().releases() == []
    looked = study.potato("training", "check", "gpu-server", "--trainer", "test-quick", "--json")
    assert json.loads(looked.stdout)["to_be_released"] == []
    study.nothing_is_left()


def test_on_disconnect_finish_goes_on_alone_and_is_fetched_later(remote):
    study = remote(heartbeat_timeout_s=3, on_disconnect="finish")
    process, run_id = runs(study, steps=100, step_seconds=0.05)
    study.ssh_config(more="ProxyCommand false")
    strike(study.ssh_processes())
    study.wait_until(lambda: study.run(run_id).facts.get("connection", {}).get("up") is False, "the trouble's note")
    assert "connection" in study.potato("training", "show", "last").stdout
    job = study.jobs / run_id
    study.wait_until(lambda: (job / "exit_code").exists(), "the worker's end, alone")
    process.kill()
    os.kill(study.supervisor(), signal.SIGKILL)     # the laptop is switched off
    study.ssh_config()
    study.potato("training", "supervise", check=True)
    assert study.run(run_id).state == "succeeded"
    assert (study.places.run_dir(run_id) / "artifacts" / "sentiment" / "shares.json").exists()
    study.nothing_is_left()


# --- cancelled ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", ["test-slow", "test-stubborn"])
def test_a_cancelled_run_leaves_nothing(remote, trainer):
    study = remote()
    process, run_id = study.train(trainer, **(LONG if trainer == "test-slow" else {}))
    study.reaches(run_id, "running")
    study.potato("training", "cancel", run_id, check=True)
    assert study.finish(process)[1] == 1
    assert study.ended(run_id).state == "cancelled"
    study.nothing_is_left()


def test_a_cancel_while_the_host_does_not_answer_ends_after_the_grace(remote):
    study = remote()
    study.configure(grace_seconds=1)
    process, run_id = runs(study, **LONG)
    study.ssh_config(more="ProxyCommand sleep 60")
    strike(study.ssh_processes())
    study.wait_until(lambda: study.run(run_id).facts.get("connection", {}).get("up") is False, "the trouble's note")
    study.potato("training", "cancel", run_id, check=True)
    assert study.finish(process)[1] == 1
    assert study.run(run_id).state == "cancelled"
    assert study.store().releases(), "nobody has confirmed yet"
    study.ssh_config()
    study.ended(run_id)
    study.nothing_is_left()


def test_a_cancel_while_the_host_is_looked_at(remote):
    study = remote()
    program = study.account.program("bin/nvidia-smi", "#!/bin/sh\nexec sleep 600\n")
    study.backend(env={"PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin"})
    process, run_id = study.train("test-quick")
    study.wait_until(lambda: study.account.processes("sleep 600"), "the look")
    study.potato("training", "cancel", run_id, check=True)
    assert study.finish(process)[1] == 1
    assert study.ended(run_id).state == "cancelled"
    study.nothing_is_left()


def test_a_run_that_asks_nobody_is_not_released_from_a_host_that_was_never_reached(remote):
    study = remote()
    study.ssh_config(more="ProxyCommand false")
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 1
    assert "ssh to gpu.example.org failed: " in ran.stdout
    study.wait_until(lambda: not study.processes(), "the supervisor's end")
    study.nothing_is_left()
