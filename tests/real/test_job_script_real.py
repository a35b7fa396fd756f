"""Compiled job scripts on a real Slurm: what it accepts, what it makes of the flags, how jobs end."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
from potato_training.compiler import RunRequest, compile_run
from potato_training.compiler.quoting import directive
from potato_training.schema.config import load_or_raise

pytestmark = pytest.mark.real
TESTS = Path(__file__).parents[1]
STUB = TESTS / "fixtures" / "stub_worker"
GOLDEN = TESTS / "golden" / "compiler"


class Job:
    """One job directory, its script compiled, its worker the stub that waits for a file named `leave`."""

    def __init__(self, root, cluster, script, wait_until):
        self.root, self.cluster, self.wait_until = root, cluster, wait_until
        root.mkdir(parents=True)
        shutil.copytree(STUB, root / "code")
        (root / "job.sh").write_text(script, encoding="utf-8")
        (root / "spec.json").write_text("{}")

    def start(self, *options):
        job_id = self.cluster.sbatch(self.root / "job.sh", *options)
        self.wait_until(lambda: self.events("started"), "the worker's first event")
        return job_id

    def read(self, name):
        path = self.root / name
        return path.read_text("utf-8") if path.exists() else None

    def events(self, kind=None):
        lines = (self.read("events.jsonl") or "").splitlines()
        return [e for e in map(json.loads, lines) if kind in (None, e["event"])]

    def leave(self, code):
        (self.root / "leave.tmp").write_text(str(code))
        (self.root / "leave.tmp").replace(self.root / "leave")


@pytest.fixture
def job(slurm_cluster, compiled, wait_until):
    made = []

    def make(**keys):
        script = compiled("slurm", **{"job_python": sys.executable, **keys}).files["job.sh"]
        here = Job(slurm_cluster.fresh() / "remote dir" / "jobs" / "r1", slurm_cluster, script, wait_until)
        made.append(here)
        return here

    yield make
    slurm_cluster.cancel_all()


# --- acceptance of the scripts -----------------------------------------------------------------------

CASES = [(case, name) for case in ("tutorial", "least", "every-key", "hostile")
         for name, b in load_or_raise(GOLDEN / f"{case}.yaml").backends.items() if b.type == "slurm"]


@pytest.mark.parametrize(("case", "backend"), CASES)
def test_sbatch_takes_every_golden_script(slurm_cluster, case, backend):
    """--test-only: as far as names go that this cluster does not have, its refusal names them and not the script."""
    config = load_or_raise(GOLDEN / f"{case}.yaml")
    text = compile_run(config, RunRequest("r", backend, "sklearn-text", ("sentiment",)), version="1").files["job.sh"]
    done = slurm_cluster.run(["sbatch", "--test-only"], input=text, check=False, cwd=slurm_cluster.fresh())
    if case in ("every-key", "hostile"):
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] in (
            "allocation failure: Invalid node name specified", "allocation failure: Requested reservation is invalid",
            "allocation failure: Invalid partition name specified")
    else:
        assert done.returncode == 0, done.stderr
        assert "to start at" in done.stderr


FLAGS = [
    ({"partition": "short"}, {"Partition": "short"}),
    ({"time": "12:00:00"}, {"TimeLimit": "12:00:00"}),
    ({"time": "90"}, {"TimeLimit": "01:30:00"}),
    ({"time": "1-12"}, {"TimeLimit": "1-12:00:00"}),
    ({"time": "4:00"}, {"TimeLimit": "00:04:00"}),
    ({"time": "UNLIMITED"}, {"TimeLimit": "UNLIMITED"}),
    ({"gres": "gpu:2"}, {"TresPerNode": "gres:gpu:2"}),
    ({"cpus_per_task": 3}, {"CPUs/Task": "3", "NumCPUs": "3"}),
    ({"mem": "512M"}, {"MinMemoryNode": "512M"}),
    ({"nice": 77}, {"Nice": "77"}),
    ({"nodelist": "n2"}, {"ReqNodeList": "n2"}),
    ({"exclude": "n1"}, {"ExcNodeList": "n1"}),
    ({"account": "a b"}, {"Account": "a"}),      # shown up to the space: the words are split here
    ({"constraint": "big&fast"}, {"Features": "big&fast"}),
    ({"mail_type": "END,FAIL", "mail_user": "me@example.org"}, {"MailUser": "me@example.org", "MailType": "END,FAIL"}),
    ({"requeue": True}, {"Requeue": "1"}),
    ({"requeue": False}, {"Requeue": "0"}),
    ({"sbatch_args": ["--comment=plain", "--exclusive"]}, {"Comment": "plain", "OverSubscribe": "NO"}),
    ({"run_id": "20260101-000000-abcdef"}, {"JobName": "potato-20260101-000000-abcdef"}),
]


@pytest.mark.parametrize(("keys", "shown"), FLAGS, ids=lambda v: str(v)[:40])
def test_a_job_is_what_the_config_says(slurm_cluster, job, keys, shown):
    here = job(**keys)
    job_id = slurm_cluster.sbatch(here.root / "job.sh", "--hold")
    found = slurm_cluster.job(job_id)
    assert {key: found.get(key) for key in shown} == shown
    assert found["WorkDir"] == str(here.root).split(" ")[0]     # likewise split
    assert found["JobName"].startswith("potato-")


HOSTILE = ["it's", 'say "hi"', "$HOME $(id) `id`", "a\\b \\\\ \\n", "#1 a#b", "  x", "é 日本 “q”", "a;b|c&d", "*?[a-z]",
           "--wrap=x", "'", '"', "\\", "=", "~/x", "%j", "x" * 1000]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda v: v[:20])
def test_sbatch_reads_a_hostile_value_as_it_was_written(slurm_cluster, value):
    folder = slurm_cluster.fresh()
    (folder / "j.sh").write_text(
        f"#!/bin/bash\n#SBATCH --hold\n#SBATCH {directive('--comment=' + value)}\n#SBATCH --nice=77\ntrue\n", "utf-8")
    job_id = slurm_cluster.sbatch(folder / "j.sh")
    seen = slurm_cluster.run(["squeue", "-h", "-j", job_id, "-o", "%k"]).stdout
    assert seen == value + "\n"
    assert slurm_cluster.job(job_id)["Nice"] == "77"
    slurm_cluster.run(["scancel", job_id])


# --- jobs that run ------------------------------------------------------------------------------------


def test_a_job_ends_with_its_workers_code(slurm_cluster, job):
    for code, state in ((0, "COMPLETED"), (3, "FAILED")):
        here = job(gres="gpu:1", env={"A": "x $y é"}, num_threads=3)
        job_id = here.start()
        seen = here.events("started")[0]
        assert seen["env"]["A"] == "x $y é"
        assert seen["env"]["OMP_NUM_THREADS"] == "3"
        assert seen["env"]["CUDA_VISIBLE_DEVICES"] in ("0", "1")
        assert seen["cwd"] == str(here.root)
        here.leave(code)
        shown = slurm_cluster.wait_job(job_id, "COMPLETED", "FAILED")
        assert (shown["JobState"], shown["ExitCode"]) == (state, f"{code}:0")
        assert here.read("exit_code") == f"{code}\n"
        assert (here.root / "claim" / "job").read_text() == job_id + "\n"


def test_scancel_full_term(slurm_cluster, job):
    here = job()
    job_id = here.start()
    slurm_cluster.run(["scancel", "--full", "--signal=TERM", job_id])
    shown = slurm_cluster.wait_job(job_id, "FAILED", "COMPLETED", "CANCELLED")
    assert (shown["JobState"], shown["ExitCode"]) == ("FAILED", "4:0")
    assert here.read("exit_code") == "4\n"
    assert [e["event"] for e in here.events()] == ["started", "stopping", "stopped"]


def test_plain_scancel(slurm_cluster, job, wait_until):
    here = job()
    job_id = here.start()
    slurm_cluster.run(["scancel", job_id])
    assert slurm_cluster.wait_job(job_id, "CANCELLED")["JobState"] == "CANCELLED"
    wait_until(lambda: here.read("exit_code"), "the exit code")
    assert here.read("exit_code") == "4\n"
    assert [e["event"] for e in here.events()] == ["started", "stopping", "stopped"]


def test_scancel_while_the_prelude_runs(slurm_cluster, job, wait_until):
    here = job(prelude=["touch inside", "sleep 100"])
    job_id = slurm_cluster.sbatch(here.root / "job.sh")
    wait_until((here.root / "inside").exists, "the prelude")
    slurm_cluster.run(["scancel", "--full", "--signal=TERM", job_id])
    assert slurm_cluster.wait_job(job_id, "FAILED")["ExitCode"] == "4:0"
    assert here.read("exit_code") == "4\n"


def test_a_worker_that_ignores_sigterm_is_killed_with_no_verdict(slurm_cluster, job):
    here = job()
    (here.root / "deaf").touch()
    job_id = here.start()
    slurm_cluster.run(["scancel", job_id])      # KillWait is 5 s here
    slurm_cluster.wait_job(job_id, "CANCELLED")
    slurm_cluster.wait_empty(job_id)
    assert here.read("exit_code") in (None, "137\n"), "Slurm kills one process after another, maybe the worker first"


@pytest.mark.slow
@pytest.mark.thorough("Slurm's shortest limit is a minute")
def test_the_time_limit(slurm_cluster, job, wait_until):
    """A minute is the shortest that Slurm has, and it looks at most every half a minute."""
    here = job(time="1")
    job_id = here.start()
    assert slurm_cluster.wait_job(job_id, "TIMEOUT", seconds=180)["JobState"] == "TIMEOUT"
    wait_until(lambda: here.read("exit_code"), "the exit code")
    assert here.read("exit_code") == "4\n"
    assert "DUE TO TIME LIMIT" in here.read("slurm.out")


def test_preemption_without_requeue_ends_the_job(slurm_cluster, job, wait_until):
    here = job(partition="scavenge")
    job_id = here.start()
    urgent = job(partition="urgent", sbatch_args=["--exclusive"], prelude=["sleep 100"])
    slurm_cluster.sbatch(urgent.root / "job.sh")
    assert slurm_cluster.wait_job(job_id, "PREEMPTED", seconds=90)["JobState"] == "PREEMPTED"
    wait_until(lambda: here.read("exit_code"), "the exit code")
    assert here.read("exit_code") == "4\n"
    assert "DUE TO PREEMPTION" in here.read("slurm.out")


def test_preemption_with_requeue_lets_the_run_go_on(slurm_cluster, job, wait_until):
    here = job(partition="scavenge", requeue=True)
    job_id = here.start()
    urgent = job(partition="urgent", sbatch_args=["--exclusive"], prelude=["sleep 100"])
    other = slurm_cluster.sbatch(urgent.root / "job.sh")
    slurm_cluster.wait_job(job_id, "PENDING", seconds=90)
    assert here.read("exit_code") == "4\n"
    slurm_cluster.run(["scancel", other])
    slurm_cluster.wait_job(other, "CANCELLED")
    wait_until(lambda: slurm_cluster.hurry(job_id) and len(here.events("started")) == 2, "the second attempt")
    here.leave(0)
    assert slurm_cluster.wait_job(job_id, "COMPLETED")["Restarts"] == "1"
    assert (here.read("exit_code"), here.read("exit_code.1")) == ("4\n", "0\n")
    assert [e["attempt"] for e in here.events("started")] == [1, 2]
    assert "DUE TO PREEMPTION" in here.read("slurm.out")     # appended to, not truncated


def test_requeue_by_an_administrator(slurm_cluster, job, wait_until):
    here = job(requeue=True)
    job_id = here.start()
    slurm_cluster.run(["scontrol", "requeue", job_id])
    slurm_cluster.wait_job(job_id, "PENDING")
    wait_until(lambda: slurm_cluster.hurry(job_id) and len(here.events("started")) == 2, "the second attempt")
    here.leave(5)
    slurm_cluster.wait_job(job_id, "FAILED")
    assert (here.read("exit_code"), here.read("exit_code.1")) == ("4\n", "5\n")
    assert "DUE TO JOB REQUEUE" in here.read("slurm.out")


def test_without_requeue_it_is_refused(slurm_cluster, job):
    here = job()
    job_id = here.start()
    assert slurm_cluster.run(["scontrol", "requeue", job_id], check=False).returncode == 1
    here.leave(0)
    slurm_cluster.wait_job(job_id, "COMPLETED")


def test_a_twin_ends_unharmed(slurm_cluster, job):
    here = job()
    first = here.start()
    shutil.copy(here.root / "slurm.out", here.root / "kept")
    twin = slurm_cluster.sbatch(here.root / "job.sh", "--output=twin.out")
    assert slurm_cluster.wait_job(twin, "COMPLETED", "FAILED")["JobState"] == "COMPLETED"
    assert f"belongs to job {first}" in here.read("twin.out")
    assert len(here.events()) == 1
    assert here.read("exit_code") is None
    here.leave(0)
    slurm_cluster.wait_job(first, "COMPLETED")
    assert here.read("exit_code") == "0\n"


def test_a_failing_prelude(slurm_cluster, job):
    here = job(prelude=["module load cuda/99"])
    job_id = slurm_cluster.sbatch(here.root / "job.sh")
    assert slurm_cluster.wait_job(job_id, "FAILED")["ExitCode"] == "1:0"
    assert here.read("exit_code") == "1\n"
    assert here.read("stderr.log").splitlines()[-1] == (
        "potato-training: prelude failed (exit 127): module load cuda/99")


def test_an_interpreter_that_is_not_on_the_node(slurm_cluster, job):
    here = job(job_python="/nowhere/bin/python")
    job_id = slurm_cluster.sbatch(here.root / "job.sh")
    assert slurm_cluster.wait_job(job_id, "FAILED")["ExitCode"] == "3:0"
    assert "/nowhere/bin/python was not found on n" in here.read("stderr.log")


def test_the_login_shells_variables_would_win_over_the_script(slurm_cluster, job):
    """Why launch.sh removes them: with SBATCH_* set, a reader of job.sh would be wrong."""
    here = job(partition="short", time="5")
    harmful = {**slurm_cluster.env, "SBATCH_PARTITION": "main", "SBATCH_TIMELIMIT": "99", "SBATCH_JOB_NAME": "x"}
    done = slurm_cluster.run(["sbatch", "--parsable", "--hold", "job.sh"], cwd=here.root, env=harmful)
    found = slurm_cluster.job(done.stdout.strip())
    assert (found["Partition"], found["TimeLimit"], found["JobName"]) == ("main", "01:39:00", "x")


def test_a_job_that_loses_its_node(slurm_cluster, job, wait_until):
    """The worker of a killed node daemon lives on for a while; what matters here is that nothing says success."""
    here = job(sbatch_args=["--nodelist=n1"])
    job_id = here.start()
    slurm_cluster.kill_daemon("n1", signal.SIGKILL)
    try:
        slurm_cluster.run(["scontrol", "update", "nodename=n1", "state=down", "reason=test"])
        assert slurm_cluster.wait_job(job_id, "NODE_FAIL")["JobState"] == "NODE_FAIL"
        assert here.read("exit_code") in (None, "4\n")
    finally:
        slurm_cluster.start_daemon("n1")
        slurm_cluster.run(["scontrol", "update", "nodename=n1", "state=resume"])
        slurm_cluster.wait_nodes()
