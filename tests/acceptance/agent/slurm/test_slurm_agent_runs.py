"""Whole jobs through the stand-in Slurm: submitted once, watched with few questions, ended by what they leave."""

from __future__ import annotations

import re
import time

import pytest

RUNNING = ["event", "status", {"state": "running", "host": "node07"}]
GOOD = [RUNNING, ["many", 1000], ["predictions", "p\n"], ["exit", 0]]
SOON = [{"after": 1, "state": "PENDING", "reason": "Priority"}, {"after": 2, "state": "RUNNING", "node": "node07"}]
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"


def check_good(slurm, job, job_id="4242"):
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    assert job.predictions == b"p\n"
    assert len(job.worker_events) == 1002
    assert slurm.record["job_id"] == job_id


def submitted(slurm):
    return slurm.fake.state()["submitted"]


def test_a_run_from_submission_to_predictions(slurm):
    slurm.fake.scenario(life=SOON)
    slurm.clock(5)
    job = slurm.whole(GOOD, keys={"gres": "gpu:1", "time": "4:00:00"})
    check_good(slurm, job)
    steps = [step for step in slurm.steps() if "SLURM" in step]
    assert steps[0] == "Submitted SLURM job 4242 (--gres=gpu:1 --time=4:00:00)"
    assert "SLURM job 4242: PENDING (Priority)" in steps
    assert steps[-1] == "SLURM job 4242: RUNNING on node07"
    assert len(set(steps)) == len(steps)
    facts = [e for e in job.agent_events if e.get("scheduler_job")]
    assert {e["scheduler_job"] for e in facts} == {"4242"}
    assert facts[0]["state"] == "waiting"
    assert next(e["node"] for e in facts if "node" in e) == "node07"
    assert submitted(slurm) == 1
    assert slurm.bench.jobdir.read("job.sh") == job.message["job_script"]
    assert slurm.bench.jobdir.read_json("spec.json")["orphan"] == {"stdin": False, "lease_s": 30}
    (call,) = slurm.fake.calls("sbatch")
    assert call["argv"] == ["--parsable", "--job-name=potato-run-1", "job.sh"]
    assert call["cwd"] == slurm.bench.jobdir.root


def test_a_node_whose_clock_is_ahead_is_named_and_nothing_relies_on_it(slurm):
    slurm.fake.scenario(life=SOON)
    slurm.clock(5)
    ahead = {"host": "node07", "t": time.time() + 300, "trainer": "test", "state": "running"}
    job = slurm.whole([["event", "status", ahead], *GOOD], keys={})
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    (note,) = [e["msg"] for e in job.agent_events if "the clock of" in e.get("msg", "")]
    assert re.fullmatch(r"note: the clock of node07 is (300|29\d) s ahead of that of \S+", note)


def test_the_callers_variables_reach_none_of_the_commands(slurm):
    slurm.fake.scenario(life=SOON)
    slurm.clock()
    harm = {"SBATCH_PARTITION": "nope", "SQUEUE_USERS": "nobody", "SCANCEL_PARTITION": "x", "SLURM_CLUSTERS": "other",
            "SCONTROL_ALL": "1", "SLURM_JOB_ID": "7", "SLURM_CONF": "/etc/slurm.conf"}
    job = slurm.add(GOOD)
    assert slurm.start(env=harm).wait(90) == 0
    check_good(slurm, job)
    for call in slurm.fake.calls():
        if call["program"] != "fake_slurm":
            seen = {name for name in call["env"] if name.startswith("S")}
            assert seen <= {"SLURM_CONF"}, call
            assert call["env"]["LC_ALL"] == "C"


def test_a_wrapper_that_chats_and_a_cluster_behind_the_id(slurm):
    slurm.fake.scenario(life=SOON, cluster="alpha", calls={
        "sbatch": [{"stdout_before": "Welcome, 3 jobs running\n", "stdout_after": "Have fun\n",
                    "stderr_before": "sbatch: Verification: PASSED\n"}]})
    slurm.clock()
    job = slurm.whole(GOOD)
    check_good(slurm, job)
    calls = [c for c in slurm.fake.calls() if c["program"] in ("squeue", "scontrol", "scancel")]
    assert calls
    assert all(c["argv"][c["argv"].index("-M") + 1] == "alpha" for c in calls)
    assert not any(";" in word for c in calls for word in c["argv"])
    assert {e.get("scheduler_cluster") for e in job.agent_events if e.get("scheduler_job")} == {"alpha"}


@pytest.mark.parametrize("words", [
    "Batch job submission failed: Invalid account or account/partition combination specified",
    "Batch job submission failed: Requested node configuration is not available",
    "Invalid --time specification", "This user must name a project: see https://hpc.example.org",
])
def test_a_refusal_is_told_in_sbatchs_own_words(slurm, words):
    slurm.fake.scenario(calls={"sbatch": [{"act": False, "rc": 1, "stderr": f"sbatch: error: {words}\n"}]})
    job = slurm.whole(GOOD)
    assert job.result["exit_code"] is None
    assert slurm.error() == job.result["reason"] == f"sbatch refused the job: {words}"
    assert submitted(slurm) == 0
    assert slurm.fake.calls("squeue") == []


def test_no_sbatch_on_path(slurm, tmp_path):
    slurm.add(GOOD)
    (tmp_path / "empty").mkdir()
    assert slurm.start(env={"PATH": str(tmp_path / "empty")}).wait(90) == 0
    assert re.fullmatch(r"\S+ has no sbatch on PATH, so it cannot submit jobs", slurm.error())
    assert slurm.bench.job.result["exit_code"] is None


@pytest.mark.parametrize("rule", [
    {"rc": 1, "stdout": "", "stderr": TIMED_OUT},
    {"rc": 0, "stdout": "thank you\n"},
    {"rc": 130, "stdout": ""},
    {"hang": True},
], ids=["timed out", "no id", "killed", "hangs"])
def test_a_doubtful_submission_that_worked_is_found(slurm, rule):
    slurm.fake.scenario(life=SOON, calls={"sbatch": [{"calls": 1, **rule}]})
    slurm.clock(2)
    job = slurm.whole(GOOD, submit_s=2)
    check_good(slurm, job)
    assert submitted(slurm) == 1
    assert len(slurm.fake.calls("sbatch")) == 1


def test_a_doubtful_submission_that_did_not_work_is_repeated_after_answered_questions(slurm):
    slurm.fake.scenario(life=SOON, calls={
        "sbatch": [{"calls": 1, "act": False, "rc": 1, "stderr": TIMED_OUT}],
        "squeue": [{"calls": [1, 3], "act": False, "rc": 1, "stderr": "slurm_load_jobs error: Socket timed out\n"}]})
    slurm.clock()
    job = slurm.whole(GOOD)
    check_good(slurm, job)
    assert submitted(slurm) == 1
    lookups = [c for c in slurm.fake.calls("squeue") if "-n" in c["argv"]]
    assert len(lookups) >= 6
    assert any(s.startswith("cannot reach Slurm since ") for s in slurm.steps())
    assert "Slurm knows no job potato-run-1; submitting it again" in slurm.messages("warning")


def test_a_submission_that_never_works_ends(slurm):
    slurm.fake.scenario(calls={"sbatch": [{"act": False, "rc": 1, "stderr": TIMED_OUT}]})
    job = slurm.whole(GOOD, doubt_s=0.3)
    assert "Socket timed out" in job.result["reason"]
    assert len(slurm.fake.calls("sbatch")) == 3


def test_a_job_that_ends_before_anybody_knows_its_id(slurm):
    """sbatch hangs, and the job has run meanwhile: its claim tells who it is."""
    slurm.fake.scenario(life=[{"after": 0, "state": "RUNNING"}], calls={"sbatch": [{"calls": 1, "hang": True}]})
    slurm.clock()
    job = slurm.whole(GOOD)
    check_good(slurm, job)
    assert submitted(slurm) == 1


def test_few_questions(slurm):
    """One squeue an interval; the job's end needs none."""
    slurm.fake.scenario(life=SOON)
    slurm.clock(10)
    job = slurm.whole([RUNNING, ["sleep", 4], ["predictions", "p\n"], ["exit", 0]], poll_interval_s=1)
    assert job.result["exit_code"] == 0
    times = [e["t"] for e in job.agent_events if "SLURM" in e.get("step", "")]
    seconds = job.agent_events[-1]["t"] - times[0]
    counted = next(m for m in slurm.messages() if m.startswith("calls of Slurm's commands: sbatch 1, squeue "))
    calls = int(counted.rpartition(" ")[2])
    assert len(slurm.fake.calls("squeue")) <= calls <= seconds + 2
    assert slurm.fake.calls("scontrol") == slurm.fake.calls("scancel") == []


def test_squeue_away_broken_and_empty_for_a_while(slurm):
    """None of it is an end. The job goes on, and so does the run."""
    slurm.fake.scenario(life=[{"after": 1, "state": "RUNNING"}], calls={"squeue": [
        {"calls": [2, 3], "act": False, "rc": 1, "stderr": "slurm_load_jobs error: Unable to contact controller\n"},
        {"calls": [4, 5], "stdout": "4242|RUNN"}, {"calls": [6, 7], "act": False, "stdout": ""},
        {"calls": 8, "act": False, "rc": 1, "stderr": "slurm_load_jobs error: Invalid job id specified\n"}]})
    slurm.clock()
    slurm.add([["event", "status", {"state": "running"}], ["wait_file", "go"], ["predictions", "p\n"], ["exit", 0]])
    agent = slurm.start()
    slurm.bench.wait_until(lambda: len(slurm.fake.calls("squeue")) > 9, "ten questions")
    assert agent.poll() is None
    slurm.bench.jobdir.touch("go")
    assert agent.wait(90) == 0
    assert slurm.bench.job.result["exit_code"] == 0
    assert any(s.startswith("cannot reach Slurm since ") for s in slurm.steps())
    assert "Slurm answers again" in slurm.messages()


def test_states_that_nobody_planned_for(slurm):
    slurm.fake.scenario(life=[{"after": 10**6, "state": "RUNNING"}])
    slurm.clock()
    slurm.add([["event", "status", {"state": "running"}], ["wait_file", "go"], ["predictions", "p\n"], ["exit", 0]])
    agent = slurm.start()
    states = ["PENDING", "CONFIGURING", "RUNNING", "MARTIAN", "SUSPENDED", "RUNNING"]

    def seen():
        return [s.split(": ")[1].split()[0] for s in slurm.steps() if s.startswith("SLURM job 4242: ")]

    for n, state in enumerate(states):
        if n:
            slurm.fake.become("4242", state)
        slurm.bench.wait_until(lambda: len(seen()) > n, state)  # noqa: B023
    slurm.bench.jobdir.touch("go")
    assert agent.wait(90) == 0
    assert seen() == states


def test_a_reason_that_never_clears_is_said_at_once(slurm):
    slurm.fake.scenario(partitions={"main": {"default": True, "max_time": 60}})
    slurm.clock()
    job = slurm.add(GOOD, keys={"time": "90"})
    agent = slurm.start()
    warning = "SLURM job 4242 will not start: waiting does not clear PartitionTimeLimit"
    slurm.bench.wait_until(lambda: warning in slurm.messages("warning"), "the warning")
    job.cancel = True
    assert agent.wait(90) == 0
