"""An agent killed at every one of its requests, and a server that loses every one of its answers.

Whatever happens in between, the record at the end is the same.
"""

from __future__ import annotations

import random

import pytest

PLAN = [
    ["forget_stdin"], ["event", "status", {"state": "running"}], ["many", 3000], ["predictions", "p\n"], ["exit", 0],
]
#: A job that is let alone has about this many requests; the last ones of the list never come.
REQUESTS = range(1, 15)


def check(job):
    assert [e["event"] for e in job.worker_events] == ["status"] + ["progress"] * 3000 + ["result"]
    assert [e["current"] for e in job.worker_events[1:-1]] == list(range(1000)) * 3
    assert job.predictions == b"p\n"
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    assert len(job.results) == 1
    assert {claim["agent_id"] for claim in job.claims} == {job.claims[0]["agent_id"]}


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", REQUESTS)
def test_killed_at_any_request_and_started_again(bench, number, answered):
    """Killed before the server has taken the request in, or after: when it was taken in and not answered."""
    job = bench.add_job(PLAN)
    agents, seen = [], []

    def kill_one():
        seen.append(1)
        if len(seen) == number:
            bench.wait_until(lambda: agents, "the agent's greeting")
            agents[0].kill()
            agents[0].wait()

    for name in ("claim", "bundle", "events", "open_predictions", "result"):
        method = getattr(bench.intake, name)

        def at(*arguments, method=method):
            if not answered:
                kill_one()
            answer = method(*arguments)
            if answered:
                kill_one()
            return answer

        setattr(bench.intake, name, at)
    agents.append(bench.start_agent())
    if agents[0].wait(60) != 0:
        assert bench.start_agent().wait(60) == 0
    check(job)


@pytest.mark.parametrize("seed", range(3))
def test_many_answers_are_lost_and_agents_die_as_well(bench, seed):
    job = bench.add_job(PLAN, give_up_s=6)
    dice = random.Random(seed)

    def trouble(method, run_id):
        if dice.random() < 0.4:
            raise RuntimeError("no answer this time")
        if dice.random() < 0.1 and bench.agents[-1].poll() is None:
            bench.agents[-1].kill()

    bench.intake.before = trouble
    while bench.start_agent().wait(60) != 0:
        assert len(bench.agents) < 50
    check(job)


@pytest.mark.parametrize("name", [
    "agent.lock", "attach.json", "job.json", "agent.jsonl", "control", "bundle.tar.gz.part", "bundle.tmp", "bundle",
    "spec.json", "code", "code/potato_training/worker", "stdin", "worker.json", "events.jsonl", "predictions.jsonl",
    "exit_code",
])
def test_killed_when_a_file_appears_and_started_again(bench, name):
    """Whatever the directory holds, the next agent goes on from there, and never starts a second worker."""
    job = bench.add_job(PLAN)
    first = bench.start_agent()
    while not bench.jobdir.has(name) and first.poll() is None:
        pass  # no pause: the next instant is the one that is meant
    first.kill()
    first.wait()
    assert bench.start_agent().wait(60) == 0
    check(job)
