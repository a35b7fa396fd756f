"""The stand-in for Slurm: the real one's words, a clock that obeys, and the oddities that a test can order."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

WORDS = json.loads((Path(__file__).parents[1] / "fixtures" / "fake_slurm" / "words.json").read_text())
JOB = "#!/bin/bash\n#SBATCH --output=slurm.out\n"


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "job here"
    folder.mkdir()
    (folder / "j.sh").write_text(JOB + "sleep 1000\n")
    return folder


def submit(slurm, here, *options, script="j.sh"):
    done = slurm.run("sbatch", "--parsable", *options, script, cwd=here)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def queue(slurm, job_id, form="%T"):
    return slurm.run("squeue", "-h", "-j", job_id, "-o", form).stdout.strip()


def test_it_speaks_like_the_real_one(fake_slurm, here):
    """tests/real/test_fake_slurm_real.py asks the real one the same."""
    fake_slurm.scenario(partitions={"main": {"default": True}, "short": {"max_time": 1800}}, gres={"gpu": 2})
    held = submit(fake_slurm, here, "--hold")
    for case in WORDS:
        argv = [a.replace("HELD", held) for a in case["argv"]]
        more = {"input": case["stdin"]} if "stdin" in case else {}
        done = fake_slurm.run(*argv, cwd=here, env={**fake_slurm.env, **case.get("env", {})}, **more)
        assert done.returncode == case["rc"], (argv, done)
        for stream in ("stdout", "stderr"):
            wanted = case[stream].replace("HELD", held)
            assert re.fullmatch(wanted, getattr(done, stream)), (argv, stream, getattr(done, stream))


def test_time_passes_when_told(fake_slurm, here):
    fake_slurm.scenario(life=[{"after": 10, "state": "RUNNING", "node": "gpu3"}])
    job_id = submit(fake_slurm, here)
    fake_slurm.tick(9)
    assert queue(fake_slurm, job_id, "%T|%r|%N") == "PENDING|None|"
    fake_slurm.tick()
    assert queue(fake_slurm, job_id, "%T|%r|%N|%M") == "RUNNING|None|gpu3|00:00:00"
    fake_slurm.tick(75)
    assert queue(fake_slurm, job_id, "%M") == "00:01:15"


def test_a_life_with_every_kind_of_step(fake_slurm, here):
    fake_slurm.scenario(life=[
        {"after": 1, "state": "PENDING", "reason": "Priority"}, {"after": 1, "state": "CONFIGURING"},
        {"after": 1, "state": "RUNNING"}, {"after": 1, "state": "SUSPENDED"}, {"after": 1, "state": "RUNNING"},
        {"after": 1, "state": "MARTIAN"}, {"after": 1, "state": "RUNNING"}, {"after": 1, "state": "NODE_FAIL"}])
    job_id = submit(fake_slurm, here, "--no-requeue")
    seen = []
    for _ in range(8):
        fake_slurm.tick()
        seen.append(fake_slurm.job(job_id)["state"])
    assert seen[:7] == ["PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "RUNNING", "MARTIAN", "RUNNING"]


@pytest.mark.parametrize(("state", "words"), [
    ("TIMEOUT", "DUE TO TIME LIMIT ***"), ("PREEMPTED", "DUE TO PREEMPTION ***"), ("CANCELLED", " ***"),
    ("NODE_FAIL", "DUE TO NODE FAILURE"), ("OUT_OF_MEMORY", "oom-kill event"),
])
def test_ends_leave_their_words(fake_slurm, here, wait_until, state, words):
    job_id = submit(fake_slurm, here, "--no-requeue")
    fake_slurm.tick()
    fake_slurm.become(job_id, state)
    wait_until(lambda: fake_slurm.job(job_id)["state"] == state, state)
    assert words in (here / "slurm.out").read_text()
    assert queue(fake_slurm, job_id) == ""


def test_a_job_is_forgotten_after_min_job_age(fake_slurm, here, wait_until):
    fake_slurm.scenario(min_job_age=3)
    (here / "j.sh").write_text(JOB + "exit 3\n")
    job_id = submit(fake_slurm, here)
    fake_slurm.tick()
    wait_until(lambda: fake_slurm.job(job_id)["state"] == "FAILED", "the end")
    assert "ExitCode=3:0" in fake_slurm.run("scontrol", "-o", "show", "job", job_id).stdout
    fake_slurm.tick(3)
    assert fake_slurm.run("scontrol", "show", "job", job_id).returncode == 1
    assert fake_slurm.run("squeue", "-h", "-j", job_id).returncode == 1


def test_sigkill_comes_kill_wait_after_sigterm(fake_slurm, here, wait_until):
    fake_slurm.scenario(kill_wait=30)
    (here / "j.sh").write_text(JOB + "trap '' TERM\ntouch ready\nwhile :; do sleep 0.05; done\n")
    job_id = submit(fake_slurm, here)
    fake_slurm.tick()
    wait_until((here / "ready").exists, "the script")
    fake_slurm.run("scancel", job_id)
    fake_slurm.tick(29)
    assert queue(fake_slurm, job_id) == "COMPLETING"
    fake_slurm.tick()
    wait_until(lambda: fake_slurm.job(job_id)["state"] == "CANCELLED", "the end")


def test_a_missing_directory_for_the_output_is_a_launch_failure(fake_slurm, here, wait_until):
    job_id = submit(fake_slurm, here, "--output=nowhere/x.out")
    fake_slurm.tick()
    wait_until(lambda: fake_slurm.job(job_id)["state"] == "FAILED", "the end")
    assert fake_slurm.job(job_id)["reason"] == "JobLaunchFailure"


def test_a_time_beyond_the_partitions_waits_for_good(fake_slurm, here):
    fake_slurm.scenario(partitions={"main": {"default": True, "max_time": 1800}})
    job_id = submit(fake_slurm, here, "--time=90")
    fake_slurm.tick(1000)
    assert queue(fake_slurm, job_id, "%T|%r") == "PENDING|PartitionTimeLimit"


def test_variables_win_over_the_scripts_lines_as_they_do(fake_slurm, here):
    (here / "j.sh").write_text(JOB + "#SBATCH --job-name=mine --time=5\ntrue\n")
    env = {**fake_slurm.env, "SBATCH_JOB_NAME": "theirs", "SBATCH_TIMELIMIT": "99"}
    job_id = fake_slurm.run("sbatch", "--parsable", "j.sh", cwd=here, env=env).stdout.strip()
    assert queue(fake_slurm, job_id, "%j|%l") == "theirs|01:39:00"


def test_lines_after_the_first_command_are_comments(fake_slurm, here):
    (here / "j.sh").write_text("#!/bin/bash\n# x\n\nset -e\n#SBATCH --job-name=mine\ntrue\n")
    assert queue(fake_slurm, submit(fake_slurm, here), "%j") == "j.sh"


# --- single calls, bent -----------------------------------------------------------------------------


def test_a_wrapper_that_prints_around_the_id(fake_slurm, here):
    fake_slurm.scenario(cluster="alpha", calls={"sbatch": [
        {"stdout_before": "Welcome, 3 jobs running\n", "stdout_after": "bye\n", "stderr_before": "PASSED\n"}]})
    done = fake_slurm.run("sbatch", "--parsable", "j.sh", cwd=here)
    assert (done.stdout, done.stderr) == ("Welcome, 3 jobs running\n4242;alpha\nbye\n", "PASSED\n")


def test_a_failure_that_did_its_work(fake_slurm, here):
    words = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
    fake_slurm.scenario(calls={"sbatch": [{"calls": 1, "rc": 1, "stdout": "", "stderr": words}]})
    done = fake_slurm.run("sbatch", "--parsable", "j.sh", cwd=here)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", words)
    assert queue(fake_slurm, "4242") == "PENDING"
    assert submit(fake_slurm, here) == "4243"


def test_queries_that_fail_for_a_while(fake_slurm, here):
    words = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    fake_slurm.scenario(calls={"squeue": [{"clock": [5, 10], "act": False, "rc": 1, "stderr": words},
                                          {"calls": [3, 3], "act": False}]})
    job_id = submit(fake_slurm, here)
    assert queue(fake_slurm, job_id) == "PENDING"
    fake_slurm.tick(5)
    assert fake_slurm.run("squeue", "-h").stderr == words
    fake_slurm.tick(5)
    assert fake_slurm.run("squeue", "-h", "-j", job_id).stdout == ""
    assert queue(fake_slurm, job_id) == "RUNNING"


def test_a_query_that_hangs(fake_slurm, here, wait_until):
    fake_slurm.scenario(calls={"squeue": [{"hang": True}]})
    process = subprocess.Popen(["squeue", "-h"], env=fake_slurm.env)
    try:
        wait_until(lambda: fake_slurm.calls("squeue"), "the call")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
    finally:
        process.kill()
        process.wait()
    assert len(fake_slurm.calls("squeue")) == 1


def test_a_call_that_waits_for_the_clock(fake_slurm, here, wait_until):
    fake_slurm.scenario(calls={"sbatch": [{"wait": 7}]})
    process = subprocess.Popen(["sbatch", "--parsable", "j.sh"], cwd=here, env=fake_slurm.env,
                               stdout=subprocess.PIPE, text=True)
    wait_until(lambda: fake_slurm.calls("sbatch"), "the call")
    fake_slurm.tick(6)
    assert process.poll() is None
    fake_slurm.tick(1)
    assert process.communicate(timeout=90)[0] == "4242\n"


def test_every_call_is_written_down(fake_slurm, here):
    env = {**fake_slurm.env, "SBATCH_PARTITION": "main", "LC_ALL": "C"}
    fake_slurm.run("sbatch", "--parsable", "j.sh", cwd=here, env=env)
    call = fake_slurm.calls("sbatch")[0]
    assert (call["argv"], call["cwd"], call["clock"]) == (["--parsable", "j.sh"], str(here), 0)
    assert call["env"]["SBATCH_PARTITION"] == "main"


def test_a_clock_that_goes_by_itself(fake_slurm, here, wait_until):
    job_id = submit(fake_slurm, here)
    process = subprocess.Popen(["fake_slurm", "run", "100"], env=fake_slurm.env)
    try:
        wait_until(lambda: queue(fake_slurm, job_id) == "RUNNING", "the start")
        before = fake_slurm.state()["clock"]
        wait_until(lambda: fake_slurm.state()["clock"] > before, "the clock")
    finally:
        process.kill()
        process.wait()


def test_nothing_is_left_when_the_test_is_over(fake_slurm, here, wait_until):
    job_id = submit(fake_slurm, here)
    fake_slurm.tick()
    fake_slurm.run("fake_slurm", "sweep")
    wait_until(lambda: fake_slurm.job(job_id)["state"] == "FAILED", "the end")
