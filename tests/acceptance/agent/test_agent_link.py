"""Killed agents, new logins, doors that move, and an agent that slept."""

from __future__ import annotations

import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest
from potato_training.worker.agent_link import read_attach, write_attach

RUNNING = ["event", "status", {"state": "running", "step": "fit"}]
#: goes on without an agent, until the test says so
LONG = [["forget_stdin"], RUNNING, ["wait_file", "go"], ["predictions", "p\n"], ["exit", 0]]


def go(bench):
    Path(bench.jobdir.path("go")).touch()


def test_an_agent_that_takes_up_a_living_worker(bench):
    job = bench.add_job(LONG)
    first = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    worker = bench.worker
    first.kill()
    first.wait()
    second = bench.start_agent()
    assert second.greeting == f"agent {second.pid} generation 2"
    bench.wait_until(lambda: bench.said("took up this job"), "the second agent")
    assert worker.is_alive()
    go(bench)
    assert second.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    assert [e["event"] for e in job.worker_events] == ["status", "result"]
    assert len(job.claims) == 1
    assert bench.worker.pid == worker.pid


def test_an_agent_that_finds_the_worker_finished(bench):
    job = bench.add_job(LONG)
    first = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    first.kill()
    first.wait()
    go(bench)
    bench.wait_until(lambda: bench.jobdir.read_exit_code("exit_code") is not None, "the exit code")
    assert bench.start_agent().wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    assert job.predictions == b"p\n"


def test_an_agent_killed_in_the_middle_of_a_cancel_is_followed_by_one_that_ends_it(bench):
    job = bench.add_job([["ignore_term"], ["forget_stdin"], RUNNING, ["hang"]], grace_seconds=1.5)
    first = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    job.cancel = True
    bench.wait_until(lambda: bench.jobdir.read("control") == "stop\n", "the wish in control")
    first.kill()
    first.wait()
    worker = bench.worker
    assert bench.start_agent().wait(60) == 0
    assert not worker.is_alive()
    assert job.result["reason"] == "cancelled"


def test_a_new_login_moves_the_door_and_the_living_agent_follows(bench):
    job = bench.add_job(LONG)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    bench.listener.stop()
    bench.intake.tokens = {"a-fresh-token": job.owner}
    bench.token = "a-fresh-token"
    bench.new_listener()
    messenger = bench.start_agent()
    assert messenger.greeting == "attached"
    assert messenger.wait(60) == 0
    batches = job.batches
    bench.wait_until(lambda: job.batches > batches, "a word through the new door")
    go(bench)
    assert agent.wait(60) == 0
    assert job.result["reason"] == "finished"
    assert read_attach(bench.jobdir)[0] == 1


def test_a_fresh_token_at_the_same_door_is_taken_after_a_401(bench):
    job = bench.add_job(LONG)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    bench.intake.tokens = {"a-fresh-token": job.owner}
    write_attach(bench.jobdir, 1, str(bench.listener.socket), "a-fresh-token")
    batches = job.batches
    bench.wait_until(lambda: job.batches > batches, "a word with the fresh token")
    go(bench)
    assert agent.wait(60) == 0


def test_a_later_generation_ends_the_agent_and_not_its_worker(bench):
    bench.add_job(LONG)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    write_attach(bench.jobdir, 2, "/tmp/p-00000000/s", "t")
    bench.listener.stop()
    assert agent.wait(60) == 0
    assert "generation 2 has this job now" in agent.stderr.read().decode()
    assert bench.worker.is_alive()
    assert read_attach(bench.jobdir) == (2, "/tmp/p-00000000/s", "t")


def test_a_door_that_accepts_and_hangs_is_a_door_without_an_answer(bench, tmp_path):
    """The far end of a half-open ssh connection: the forwarded socket takes everything and says nothing."""
    bench.add_job([["heed_term"], RUNNING, ["hang"]], give_up_s=2)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen(50)
        write_attach(bench.jobdir, 1, str(tmp_path / "s"), bench.token)
        bench.listener.stop()
        assert agent.wait(60) == 1
    assert bench.jobdir.read_json("stop.json")["reason"] == "gave-up"


def test_an_agent_that_slept_asks_before_it_gives_up(bench):
    """A laptop's lid: everything stops for longer than give_up_s, and the server is there afterwards."""
    job = bench.add_job(LONG, give_up_s=0.6)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    agent.send_signal(signal.SIGSTOP)
    # nothing can be waited for while everything of it stands still: only time passes
    threading.Event().wait(1.5)
    agent.send_signal(signal.SIGCONT)
    batches = job.batches
    bench.wait_until(lambda: job.batches > batches, "a word after the sleep")
    assert bench.worker.is_alive()
    go(bench)
    assert agent.wait(60) == 0
    assert job.result["reason"] == "finished"


def test_an_agent_that_slept_too_long_understands_410(bench):
    job = bench.add_job([["heed_term"], RUNNING, ["hang"]])
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    worker = bench.worker
    agent.send_signal(signal.SIGSTOP)
    job.over = True
    agent.send_signal(signal.SIGCONT)
    assert agent.wait(60) == 0
    assert not worker.is_alive()
    assert job.result["reason"] == "gone"


@pytest.mark.parametrize("forwarded", [True, False])
@pytest.mark.parametrize("end", ["reported", "given up", "superseded", "released"])
def test_an_agent_takes_its_doors_along(bench, end, forwarded):
    """The directories of the sockets that logins have made for it: the next login may lead to another machine. What is
    a server's own, on its machine, is not the agent's to remove."""
    bench.add_job(LONG, grace_seconds=0.1, give_up_s=1 if end == "given up" else 30)
    first = bench.listener
    agent = bench.start_agent(forwarded=forwarded)
    bench.wait_for_worker_event(event="status")
    second = bench.new_listener()
    doors = [listener.socket.parent for listener in (first, second)]
    for door in doors:
        (door / "mark").touch()     # so that the listener's own end does not remove it
    bench.start_agent(socket=second.socket, forwarded=forwarded)    # a messenger, as another login brings one
    first.stop()                                                    # that login is over
    batches = bench.job.batches
    bench.wait_until(lambda: bench.job.batches > batches + 1, "words through the other door")
    if end == "reported":
        go(bench)
    elif end == "superseded":
        write_attach(bench.jobdir, 2, "/tmp/p-00000000/s", "t")
    elif end == "released":
        bench.jobdir.remove("attach.json")
    if end != "reported":
        second.stop()
    agent.wait(60)
    assert [door.exists() for door in doors] == [not forwarded, not forwarded]
    for door in doors:
        shutil.rmtree(door, ignore_errors=True)


def test_two_agents_at_once_are_one_agent_and_a_messenger(bench):
    job = bench.add_job(LONG)
    agents = [bench.start_agent() for _ in range(4)]
    greetings = sorted(agent.greeting.split()[0] for agent in agents)
    assert greetings == ["agent", "attached", "attached", "attached"]
    bench.wait_for_worker_event(event="status")
    go(bench)
    assert [agent.wait(60) for agent in agents] == [0, 0, 0, 0]
    assert len(job.claims) == len(job.results) == 1


def test_a_server_that_lost_events_gets_them_again(bench):
    job = bench.add_job(LONG)
    agent = bench.start_agent()
    bench.wait_for_worker_event(event="status")
    job.streams["worker"].clear()
    job.streams["agent"].clear()
    go(bench)
    assert agent.wait(60) == 0
    assert [e["event"] for e in job.worker_events] == ["status", "result"]
    assert [e["event"] for e in job.agent_events][:2] == ["status", "status"]


def test_an_agent_killed_before_its_worker_starts_costs_nothing(bench):
    """Killed while the bundle is on its way, with job.json written: the next one goes on from there."""
    job = bench.add_job([RUNNING, ["exit", 0]])
    agents = []

    def kill_at_bundle(method, run_id):
        if method == "bundle" and len(agents) == 1:
            agents[0].kill()
            agents.append(None)

    bench.intake.before = kill_at_bundle
    agents.append(bench.start_agent())
    agents[0].wait(60)
    assert bench.start_agent().wait(60) == 0
    assert job.result["reason"] == "finished"
    assert len(job.claims) == 1
