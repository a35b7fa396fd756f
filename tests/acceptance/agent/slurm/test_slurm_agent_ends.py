"""How jobs end that do not end well, how they are cancelled, and agents that die: through the stand-in Slurm."""

from __future__ import annotations

import hashlib
import json
import signal
from collections import Counter

import pytest

RUNNING = ["event", "status", {"state": "running", "host": "node07"}]
HANG = [["heed_term"], RUNNING, ["hang"]]
DEAF = [["ignore_term"], RUNNING, ["hang"]]
GOOD = [RUNNING, ["wait_file", "go"], ["predictions", "p\n"], ["exit", 0]]
AT_ONCE = [{"after": 0, "state": "RUNNING", "node": "node07"}]
PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel")


def submitted(slurm):
    return slurm.fake.state()["submitted"]


def gone(slurm, job_id="4242"):
    return not slurm.fake.run("squeue", "-h", "-j", job_id).stdout.strip()


def started(slurm, *plans, life=AT_ONCE, **fields):
    slurm.fake.scenario(life=life, **fields.pop("scenario", {}))
    slurm.clock()
    slurm.add(*plans, **fields)
    return slurm.start()


# --- ends ------------------------------------------------------------------------------------------------

LIMIT = "it reached its time limit"


@pytest.mark.parametrize(("state", "why"), [
    ("TIMEOUT", LIMIT), ("NODE_FAIL", "its node failed"), ("PREEMPTED", "it was preempted"),
    ("OUT_OF_MEMORY", "it ran out of memory"), ("CANCELLED", "it was cancelled from outside"),
    ("BOOT_FAIL", "its node failed"), ("DEADLINE", LIMIT),
])
@pytest.mark.parametrize("plan", [HANG, DEAF], ids=["heeding", "deaf"])
def test_the_scheduler_ends_the_job(slurm, state, why, plan):
    agent = started(slurm, plan, scenario={"kill_wait": 2})
    slurm.bench.wait_for_worker_event(event="status")
    slurm.fake.become("4242", state)
    assert agent.wait(90) == 0
    job = slurm.bench.job
    assert job.result["exit_code"] in (None, 4, 137)
    assert slurm.error() == job.result["reason"] == f"SLURM job 4242 ended before the worker finished: {why}"
    assert gone(slurm)
    assert submitted(slurm) == 1


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED"])
def test_slurm_out_alone_tells_where_scontrol_is_of_no_use(slurm, state):
    (slurm.fake.programs / "scontrol").write_text("#!/bin/sh\necho no config >&2\nexit 1\n")
    agent = started(slurm, HANG, scenario={"min_job_age": 0})
    slurm.bench.wait_for_worker_event(event="status")
    slurm.fake.become("4242", state)
    assert agent.wait(90) == 0
    assert "ended before the worker finished: it " in slurm.error()


@pytest.mark.parametrize(("line", "code"), [("exit 3", 3), ("exec true", 0)])
def test_a_startup_file_that_ends_the_job(slurm, tmp_path, line, code):
    (tmp_path / ".profile").write_text(line + "\n")
    slurm.fake.scenario(life=AT_ONCE)
    slurm.clock()
    slurm.add(GOOD)
    assert slurm.start(env={"HOME": str(tmp_path)}).wait(90) == 0
    assert slurm.error() == f"SLURM job 4242 ended before the first line of its script (exit code {code})"
    hint = next(e["install_hint"] for e in slurm.bench.job.agent_events if e["event"] == "error")
    assert ".profile" in hint


def test_a_startup_file_that_sets_the_jobs_id(slurm, tmp_path):
    (tmp_path / ".profile").write_text("export SLURM_JOB_ID=777\n")
    slurm.fake.scenario(life=AT_ONCE)
    slurm.clock()
    job = slurm.add(GOOD)
    slurm.bench.jobdir.touch("go")
    assert slurm.start(env={"HOME": str(tmp_path)}).wait(90) == 0
    assert (job.result["exit_code"], slurm.record["job_id"]) == (0, "4242")
    assert slurm.messages("warning") == []


def test_a_worker_that_stops_itself_says_why(slurm):
    """Its agent was gone for too long; the next one comes when it is over."""
    why = "no sign of the agent for 72 seconds"
    alone = [RUNNING, ["wait_file", "go"], ["event", "result", {"status": "cancelled", "reason": why}], ["exit", 4]]
    agent = started(slurm, alone)
    slurm.bench.wait_for_worker_event(event="status")
    kill(agent)
    slurm.bench.jobdir.touch("go")
    slurm.bench.wait_until(lambda: slurm.bench.jobdir.read("exit_code"), "the exit code")
    assert slurm.start().wait(90) == 0
    assert slurm.error() == f"SLURM job 4242: the worker stopped itself: {why}"
    hint = next(e["install_hint"] for e in slurm.bench.job.agent_events if e["event"] == "error")
    assert "heartbeat_timeout_s" in hint and "on_disconnect" in hint


def test_a_job_that_could_not_be_launched(slurm):
    agent = started(slurm, HANG, life=[{"after": 2, "state": "LAUNCH_FAILURE"}])
    assert agent.wait(90) == 0
    assert slurm.error() == "SLURM job 4242 ended before the worker finished: it could not be launched"


def test_cancelled_by_a_stranger_while_pending(slurm):
    agent = started(slurm, HANG, life=[{"after": 9999, "state": "RUNNING"}], settle_s=900)
    slurm.wait_for_id()
    slurm.fake.run("scancel", "4242")
    assert agent.wait(90) == 0      # nothing to settle: it never ran
    assert slurm.error() == "SLURM job 4242 ended before the worker finished: it was cancelled from outside"


def test_a_job_that_vanishes_without_a_word(slurm):
    agent = started(slurm, DEAF)
    slurm.bench.wait_for_worker_event(event="status")
    slurm.fake.become("4242", "FORGET")
    assert agent.wait(90) == 0
    assert slurm.error() == "SLURM job 4242 left the queue without reporting a result"
    assert slurm.bench.job.result["exit_code"] is None


def test_an_exit_code_that_shows_late(slurm):
    """Everything is there half a second after the job has left the queue, as on shared storage."""
    script = ("#!/bin/bash\n#SBATCH --output=slurm.out\nmkdir claim; echo $SLURM_JOB_ID > claim/job\n"
              "( sleep 1.5; echo 3 > exit_code.tmp; mv exit_code.tmp exit_code ) > /dev/null 2>&1 < /dev/null &\n"
              "exit 0\n")
    agent = started(slurm, [], script=script, settle_s=6, scenario={"min_job_age": 1})
    assert agent.wait(90) == 0
    assert slurm.bench.job.result["exit_code"] == 3
    assert slurm.error() is None


def test_events_and_predictions_that_show_after_the_exit_code(slurm):
    agent = started(slurm, [RUNNING, ["exit", 0]], settle_s=60)
    slurm.bench.wait_until(lambda: slurm.bench.jobdir.read("exit_code"), "the exit code")
    digest = hashlib.sha256(b"p\n").hexdigest()
    event = {"v": 1, "event": "result", "t": 1, "attempt": 1, "status": "succeeded", "predictions_sha256": digest}
    with open(slurm.bench.jobdir.path("events.jsonl"), "a") as file:
        file.write(json.dumps(event) + "\n")
    slurm.bench.wait_for_worker_event(event="result")
    assert agent.poll() is None
    slurm.bench.jobdir.write("predictions.jsonl", "p\n")
    assert agent.wait(90) == 0
    assert slurm.bench.job.predictions == b"p\n"


def test_the_prelude_fails(slurm):
    job = started(slurm, HANG, keys={"prelude": ["module load cuda/99"]})
    assert job.wait(90) == 0
    assert slurm.error() == "prelude failed (exit 127): module load cuda/99"
    assert slurm.bench.job.result["exit_code"] == 1


def test_the_ends_of_both_logs_come_along(slurm):
    agent = started(slurm, [["stderr", "a last word\n"], RUNNING, ["die", 9]], keys={"prelude": ["echo hello"]})
    assert agent.wait(90) == 0
    assert slurm.messages("slurm") == ["hello"]
    assert "a last word" in slurm.messages("stderr")
    assert slurm.bench.job.result["exit_code"] == 137


def test_a_requeued_job_is_another_attempt(slurm):
    agent = started(slurm, HANG, GOOD, keys={"requeue": True}, life=[
        {"after": 1, "state": "RUNNING"}, {"after": 1, "state": "PENDING", "reason": "BeginTime"},
        {"after": 3, "state": "RUNNING"}][:1])
    slurm.bench.wait_for_worker_event(event="status")
    slurm.fake.become("4242", "REQUEUE")
    slurm.bench.wait_until(lambda: "SLURM job 4242 was requeued: attempt 2" in slurm.messages("warning"), "the requeue")
    slurm.bench.wait_until(lambda: slurm.fake.job("4242")["state"] == "PENDING", "pending again")
    slurm.fake.become("4242", "RUNNING")
    slurm.bench.jobdir.touch("go")
    assert agent.wait(90) == 0
    job = slurm.bench.job
    assert (job.result["exit_code"], job.predictions) == (0, b"p\n")
    assert [e["attempt"] for e in job.worker_events if e["event"] == "status"] == [1, 2]
    assert any(e["attempt"] == 2 and e.get("state") == "waiting" for e in job.agent_events)
    assert slurm.error() is None


# --- cancelling ---------------------------------------------------------------------------------------


NAME = "--name=potato-run-1"


def cancelled(slurm, agent, others=False):
    slurm.bench.job.cancel = True
    assert agent.wait(90) == 0, agent.stderr.read().decode()
    assert slurm.bench.job.result["reason"] == "cancelled"
    assert others or gone(slurm)
    return [" ".join(c["argv"]) for c in slurm.fake.calls("scancel")]


def test_cancel_while_pending(slurm):
    agent = started(slurm, HANG, life=[{"after": 9999, "state": "RUNNING"}])
    slurm.wait_for_id()
    assert cancelled(slurm, agent) == [f"{NAME} --state=PENDING 4242"]
    assert slurm.fake.job("4242")["state"] == "CANCELLED"


def test_cancel_while_running(slurm):
    agent = started(slurm, HANG)
    slurm.bench.wait_for_worker_event(event="status")
    calls = cancelled(slurm, agent)
    assert f"{NAME} --full --signal=TERM 4242" in calls
    assert slurm.bench.job.result["exit_code"] == 4


def test_cancel_a_worker_that_does_not_listen(slurm):
    agent = started(slurm, DEAF, grace_seconds=1)
    slurm.bench.wait_for_worker_event(event="status")
    calls = cancelled(slurm, agent)
    rungs = ("--state=PENDING", "--full --signal=TERM", "--full --signal=KILL")
    assert calls[:3] == [f"{NAME} {rung} 4242" for rung in rungs]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_cancel_never_touches_another_job_that_was_given_the_id(slurm, state):
    """As after a controller was set back to an older state."""
    agent = started(slurm, HANG, life=[{"after": 9999, "state": "RUNNING"}], grace_seconds=1)
    slurm.wait_for_id()
    if state == "RUNNING":
        slurm.fake.become("4242", "RUNNING")
        slurm.bench.wait_for_worker_event(event="status")
    slurm.fake.run("fake_slurm", "rename", "4242", "mywork")
    cancelled(slurm, agent, others=True)
    assert slurm.fake.job("4242")["state"] == state


def test_cancel_with_a_controller_that_is_away(slurm):
    away = {"act": False, "rc": 1, "stderr": "slurm_load_jobs error: Socket timed out on send/recv operation\n"}
    agent = started(slurm, DEAF, grace_seconds=0.5)
    slurm.bench.wait_for_worker_event(event="status")
    slurm.fake.scenario(life=AT_ONCE, calls={name: [away] for name in ("squeue", "scontrol", "scancel")})
    slurm.bench.job.cancel = True
    slurm.bench.wait_until(lambda: len(slurm.fake.calls("scancel")) >= 3, "three tries")
    assert agent.poll() is None     # nothing is proven
    slurm.fake.scenario(life=AT_ONCE)
    assert agent.wait(90) == 0
    assert gone(slurm)


def test_cancel_while_nobody_knows_whether_there_is_a_job(slurm):
    slurm.fake.scenario(calls={"sbatch": [{"rc": 1, "stdout": "", "stderr": "Socket timed out\n"}],
                               "squeue": [{"act": False, "rc": 1, "stderr": "Socket timed out\n"}]})
    slurm.clock()
    slurm.add(HANG)
    agent = slurm.start()
    slurm.bench.wait_until(lambda: slurm.fake.calls("squeue"), "a lookup")
    slurm.bench.job.cancel = True
    slurm.fake.scenario()
    assert agent.wait(90) == 0
    assert submitted(slurm) == 1
    assert gone(slurm)


def test_over_on_the_server(slurm):
    agent = started(slurm, HANG)
    slurm.bench.wait_for_worker_event(event="status")
    slurm.bench.job.over = True
    assert agent.wait(90) == 0
    assert gone(slurm)


def test_no_server_for_too_long(slurm):
    agent = started(slurm, HANG, give_up_s=1, grace_seconds=1)
    slurm.bench.wait_for_worker_event(event="status")
    slurm.bench.listener.stop()
    slurm.bench._listener = None
    assert agent.wait(90) == 1
    assert gone(slurm)


# --- agents that die ------------------------------------------------------------------------------------


def kill(agent):
    agent.send_signal(signal.SIGKILL)
    agent.wait()


def finish(slurm, **options):
    agent = slurm.start(**options)
    slurm.bench.jobdir.touch("go")
    assert agent.wait(90) == 0, agent.stderr.read().decode()
    job = slurm.bench.job
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    assert job.predictions == b"p\n"
    assert submitted(slurm) == 1
    assert len([e for e in job.worker_events if e["event"] == "status"]) == 1


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same node", "another login node"])
@pytest.mark.parametrize("rule", [{"wait": 10**6}, {"hang": True}, {"act": False, "hang": True}],
                         ids=["before it acts", "after it acted", "never acts"])
def test_killed_while_sbatch_is_at_work(slurm, rule, elsewhere):
    """An sbatch on another login node may still be at work: nothing is submitted before its own alarm has ended it."""
    slurm.fake.scenario(life=AT_ONCE, calls={"sbatch": [{"calls": 1, **rule}]})
    slurm.clock()
    slurm.add(GOOD, submit_s=2)
    agent = slurm.start()
    slurm.bench.wait_until(lambda: slurm.fake.calls("sbatch"), "sbatch")
    if rule.get("hang") and rule.get("act", True):
        slurm.bench.wait_until(lambda: submitted(slurm) == 1, "the job")
    kill(agent)
    if elsewhere:
        identity = slurm.bench.jobdir.read_json("sbatch.json")
        slurm.bench.jobdir.write_json("sbatch.json", {**identity, "host": "login2"})
    finish(slurm)


@pytest.mark.parametrize("when", ["submitted", "running", "ended"])
def test_killed_later(slurm, when):
    agent = started(slurm, GOOD, life=[{"after": 15, "state": "RUNNING"}])
    slurm.wait_for_id()
    if when != "submitted":
        slurm.bench.wait_for_worker_event(event="status")
    if when == "ended":
        agent.send_signal(signal.SIGSTOP)
        slurm.bench.jobdir.touch("go")
        slurm.bench.wait_until(lambda: slurm.bench.jobdir.read("exit_code"), "the exit code")
    kill(agent)
    finish(slurm)


def test_calls_are_counted_whoever_makes_them_and_told_once(slurm):
    agent = started(slurm, GOOD)
    slurm.bench.wait_for_worker_event(event="status")
    slurm.bench.wait_until(lambda: len(slurm.fake.calls("squeue")) > 2, "some questions")
    kill(agent)
    finish(slurm)
    made = Counter(call["program"] for call in slurm.fake.calls() if call["program"] in PROGRAMS)
    (told,) = [m for m in slurm.messages("info") if m.startswith("calls of Slurm's commands: ")]
    counted = Counter({k: int(n) for k, n in (said.split() for said in told.partition(": ")[2].split(", "))})
    assert made["sbatch"] == counted["sbatch"] == 1
    # counted before it is made; the last one may have been broken off by the job's end before it did anything
    assert not made - counted
    assert (counted - made).total() <= 2, "one for each agent"


def test_killed_between_the_intent_and_sbatch(slurm):
    slurm.fake.scenario(life=AT_ONCE)
    slurm.clock()
    slurm.add(GOOD)
    record = {"name": "potato-run-1", "tries": 1}
    agent = slurm.start()
    slurm.wait_for_id()
    slurm.bench.wait_for_worker_event(event="status")
    kill(agent)
    # as if it had died before: but the job is there, and is found
    slurm.bench.jobdir.write_json("slurm.json", record)
    for name in ("sbatch.out", "sbatch.json"):
        slurm.bench.jobdir.remove(name)
    finish(slurm)


def test_killed_before_sbatch_with_a_wish_to_stop(slurm):
    """The next agent submits nothing."""
    slurm.fake.scenario(life=AT_ONCE)
    slurm.add(GOOD, keys={"partition": "nope"})
    assert slurm.start().wait(90) == 0
    slurm.bench.jobdir.write_json("slurm.json", {**slurm.record, "tries": 0, "refused": "", "calls": {}})
    slurm.bench.jobdir.write_json("stop.json", {"reason": "cancelled", "message": ""})
    assert slurm.start().wait(90) == 0
    assert slurm.bench.job.result["reason"] == "cancelled"
    assert slurm.record["calls"] == {}


def test_killed_while_cancelling(slurm):
    agent = started(slurm, DEAF, grace_seconds=1000)
    slurm.bench.wait_for_worker_event(event="status")
    slurm.bench.job.cancel = True
    slurm.bench.wait_until(lambda: slurm.fake.calls("scancel"), "a scancel")
    kill(agent)
    message = slurm.bench.jobdir.read_json("job.json")
    slurm.bench.jobdir.write_json("job.json", {**message, "grace_seconds": 0.5})
    agent = slurm.start()
    assert agent.wait(90) == 0
    assert slurm.bench.job.result["reason"] == "cancelled"
    assert gone(slurm)


def test_a_twin_is_cancelled(slurm):
    agent = started(slurm, GOOD, life=[{"after": 9999, "state": "RUNNING"}],
                    scenario={"calls": {"sbatch": [{"calls": 1, "rc": 1, "stdout": "", "stderr": "timed out\n"}],
                                        "squeue": [{"calls": [1, 3], "act": False, "rc": 1, "stderr": "away\n"}]}})
    slurm.bench.wait_until(lambda: slurm.fake.calls("squeue"), "a lookup")
    slurm.fake.run("sbatch", "--job-name=potato-run-1", "job.sh", cwd=slurm.bench.jobdir.root)
    assert slurm.wait_for_id() == "4242"
    slurm.bench.wait_until(lambda: slurm.fake.job("4243")["state"] == "CANCELLED", "the twin's end")
    slurm.fake.become("4242", "RUNNING")
    slurm.bench.jobdir.touch("go")
    assert agent.wait(90) == 0
    assert slurm.bench.job.result["exit_code"] == 0


def test_the_lease_is_kept(slurm):
    agent = started(slurm, GOOD)
    slurm.wait_for_id()
    slurm.bench.wait_until(lambda: (slurm.bench.jobdir.read("lease") or "new\n") != "new\n", "the agent's sign")
    slurm.bench.jobdir.touch("go")
    assert agent.wait(90) == 0
