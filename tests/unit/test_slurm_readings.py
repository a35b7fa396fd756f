"""What is said to Slurm, and what its answers mean."""

from __future__ import annotations

import os
import sys

import pytest
from potato_training.worker import slurm, slurm_why
from potato_training.worker.jobdir import JobDir
from potato_training.worker.slurm import Done, Doubtful, Look, Refused, Submitted
from potato_training.worker.slurm_call import Call, has_program
from potato_training.worker.slurm_ladder import Ladder
from potato_training.worker.slurm_news import Bulletin
from potato_training.worker.slurm_record import Record

# --- submit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("out", "job_id", "cluster"), [
    ("4242\n", "4242", ""), ("75168;alpha\n", "75168", "alpha"), ("Welcome, 3 jobs running\n4242\n", "4242", ""),
    ("7\n4242\nbye\n", "4242", ""), ("Submitted batch job 4242\n", "4242", ""),
    ("Submitted batch job 4242 on cluster alpha\n", "4242", "alpha"), ("  4242  \r\n", "4242", ""),
    ("4242", "4242", ""),
])
def test_the_id_is_found(out, job_id, cluster):
    answer = slurm.read_submit(Done(0, out, "sbatch: Verification: PASSED\n"))
    assert answer == Submitted(job_id, cluster)


@pytest.mark.parametrize("done", [
    Done(None), Done(0, ""), Done(0, "job\n"), Done(0, "0\n"), Done(0, "4242;rm -rf\n"), Done(-9, "", "error"), Done(1),
    Done(1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"),
    Done(1, "", "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"),
    Done(1, "", "Slurm temporarily unable to accept job, sleeping and retrying"), Done(1, "4242\n", "the hook failed"),
    Done(137, "", "Killed"),
])
def test_a_submission_that_may_have_worked(done):
    assert isinstance(slurm.read_submit(done), Doubtful)


@pytest.mark.parametrize(("code", "err", "words"), [
    (1, "sbatch: error: Batch job submission failed: Invalid qos specification\n",
     "Batch job submission failed: Invalid qos specification"),
    (255, "sbatch: error: Invalid --time specification\n", "Invalid --time specification"),
    (1, "sbatch: error: no project\nsbatch: error: see the wiki\n", "no project; see the wiki"),
])
def test_a_refusal_has_sbatchs_words(code, err, words):
    assert slurm.read_submit(Done(code, "", err)) == Refused(words)


def test_find():
    assert slurm.read_find(Done(0, "potato|12|RUNNING|\nhello\npotato|7|PENDING|\n")) == ["7", "12"]
    assert slurm.read_find(Done(0, "hello\n")) == []
    assert slurm.read_find(Done(0, "")) == []
    for done in (Done(None), Done(1, "", "x"), Done(0, "potato|7|PEND"), Done(0, "potato|7_[1-2]|PENDING|\n"),
                 Done(0, "", "squeue: error: 'alpha' can't be reached now")):
        assert slurm.read_find(done) is None


# --- poll and show --------------------------------------------------------------------------------------


def test_poll():
    read = slurm.read_poll
    assert read(Done(0, "42|PENDING|Priority||potato-x\n"), "42", "potato-x") == Look("PENDING", "Priority")
    there = Look("RUNNING", "None", "n[1-2]")
    assert read(Done(0, "CLUSTER: alpha\n42|RUNNING|None|n[1-2]|potato-x\n"), "42", "potato-x") == there
    assert read(Done(0, "hi\n42|MARTIAN|a|b|potato-x\n"), "42", "potato-x").state == "MARTIAN"
    assert read(Done(0, ""), "42", "potato-x").gone
    assert read(Done(0, "CLUSTER: alpha\n"), "42", "potato-x").gone
    assert read(Done(1, "", "slurm_load_jobs error: Invalid job id specified\n"), "42", "potato-x").gone


@pytest.mark.parametrize("done", [
    Done(None), Done(None, missing=True), Done(1, "", "slurm_load_jobs error: Socket timed out"),
    Done(0, "42|RUNN"),
    Done(0, "42|RUNNING|None|n1|potato-x"), Done(0, "42|RUNNING|None|n1\n"), Done(0, "43|RUNNING|None|n1|potato-x\n"),
    Done(0, "garbage\n"), Done(255),
    Done(0, "42|?|x|y|potato-x\n"),
    Done(2, "", "Invalid job id specified"), Done(-15), Done(0, "", "squeue: error: 'alpha' can't be reached now\n"),
])
def test_poll_does_not_know(done):
    look = slurm.read_poll(done, "42", "potato-x")
    assert not look.known
    assert not look.over
    assert look.why


def test_another_job_that_was_given_the_id_is_not_ours():
    """slurmctld was set back to an older state; or it has wrapped round."""
    for name in ("mywork", "potato-x2", "a|potato-x", "potato-x|", ""):
        assert slurm.read_poll(Done(0, f"42|RUNNING|None|n1|{name}\n"), "42", "potato-x") == Look(gone=True)
    text = "JobId=42 JobName=mywork UserId=me(7) JobState=RUNNING Reason=None NodeList=n1 Comment=JobName=potato-x\n"
    assert slurm.read_show(Done(0, text), "42", "potato-x") == Look(gone=True)
    assert not slurm.read_show(Done(0, text.replace("JobName=mywork ", "")[:text.index(" Comment")]), "42", "x").known


def test_show():
    text = ("JobId=42 JobName=potato-x UserId=me(7) JobState=FAILED Reason=JobLaunchFailure Dependency=(null) "
            "Restarts=2 ExitCode=0:53 NodeList=(null) Comment=JobState=RUNNING\n")
    look = slurm.read_show(Done(0, text), "42", "potato-x")
    assert look == Look("FAILED", "JobLaunchFailure", restarts=2, exit="0:53")
    assert slurm.read_show(Done(1, "", "slurm_load_jobs error: Invalid job id specified\n"), "42", "potato-x").gone
    for done in (Done(0, text[:-1]), Done(0, text.replace("=42", "=43")), Done(0, ""), Done(None), Done(1, "", "?")):
        assert not slurm.read_show(done, "42", "potato-x").known


def test_how_a_state_reads():
    assert str(Look("PENDING", "Priority")) == "PENDING (Priority)"
    assert str(Look("PENDING", "None")) == "PENDING"
    assert str(Look("RUNNING", "None", "node07")) == "RUNNING on node07"
    assert slurm.never_starts(Look("PENDING", "PartitionTimeLimit"))
    assert slurm.never_starts(Look("PENDING", "QOSMaxCpuPerJobLimit"))
    assert slurm.never_starts(Look("PENDING", "AssocMaxWallDurationPerJobLimit"))
    for reason in ("Priority", "Resources", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "BeginTime", "JobHeldUser"):
        assert not slurm.never_starts(Look("PENDING", reason)), reason


@pytest.mark.parametrize(("reason", "how"), [
    ("JobHeldAdmin", "only the cluster's administrators can release it"),
    ("JobHeldUser", "`scontrol release 42` lets it go on"),
    ("job requeued in held state", "`scontrol release 42` lets it go on"),
    ("launch failed requeued held", "`scontrol release 42` lets it go on"),
    ("Priority", ""),
])
def test_a_job_that_somebody_holds(tmp_path, reason, how):
    record = Record(JobDir(str(tmp_path)), "potato-x")
    record.job_id = "42"
    bulletin = Bulletin(record, 1)
    bulletin.state(Look("PENDING", reason))
    warnings = [e["msg"] for e in bulletin.take() if e.get("level") == "warning"]
    assert warnings == ([f"SLURM job 42 is held ({reason}): {how}"] if how else [])


# --- why ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "why"), [
    ("slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2026-01-01T12:00:00 DUE TO TIME LIMIT ***", slurm_why.LIMIT),
    ("slurmstepd-n1: error: *** STEP 42.batch ON n1 CANCELLED AT 2026-01-01T12:00:00 DUE TO PREEMPTION ***",
     slurm_why.PREEMPTED),
    ("slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2026-01-01T12:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***",
     slurm_why.NODE),
    ("slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2026-01-01T12:00:00 ***", slurm_why.CANCELLED),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=42.batch.", slurm_why.MEMORY),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=42.batch.\n"
     "slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2026-01-01T12:00:00 ***", slurm_why.MEMORY),
    ("slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2026-01-01T12:00:00 DUE TO JOB REQUEUE ***", None),
    ("slurmstepd: error: *** JOB 43 ON n1 CANCELLED AT 2026-01-01T12:00:00 DUE TO TIME LIMIT ***", None),
    ("a text about DUE TO TIME LIMIT and oom-kill", None), ("", None),
])
def test_what_slurm_out_tells(text, why):
    assert slurm_why.from_output("hello\n" + text + "\n", "42") == why


# --- the caller's variables, calls, rungs ----------------------------------------------------------------


def test_environment():
    given = {"PATH": "/bin", "SBATCH_PARTITION": "x", "SQUEUE_USERS": "x", "SCANCEL_NAME": "x", "SCONTROL_ALL": "1",
             "SLURM_JOB_ID": "1", "SLURM_CONF": "/c", "LC_ALL": "de_DE", "SLURMX": "kept"}
    assert slurm.environment(given) == {"PATH": "/bin", "SLURM_CONF": "/c", "LC_ALL": "C", "SLURMX": "kept"}


def test_arguments():
    assert slurm.submit("potato-r") == ["sbatch", "--parsable", "--job-name=potato-r", "job.sh"]
    assert slurm.poll("4", "alpha") == ["squeue", "-h", "-M", "alpha", "-j", "4", "-o", "%i|%T|%r|%N|%j"]
    assert slurm.cancel("term", "4", "potato-r") == ["scancel", "--name=potato-r", "--full", "--signal=TERM", "4"]
    assert slurm.cancel("plain", "4", "potato-r", "a") == ["scancel", "-M", "a", "--name=potato-r", "4"]


def ended(call, wait_until):
    return wait_until(call.done, "the call's end")


def test_a_call_of_each_kind(tmp_path, wait_until):
    call = Call(["sh", "-c", "echo out; echo err >&2; exit 3"], str(tmp_path), 60)
    assert ended(call, wait_until) == Done(3, "out\n", "err\n")
    assert ended(Call(["no-such-program"], str(tmp_path), 60), wait_until) == Done(None, missing=True)
    out, err = str(tmp_path / "o"), str(tmp_path / "e")
    call = Call(["sh", "-c", "echo out; echo err >&2"], str(tmp_path), 60, out=out, err=err)
    assert ended(call, wait_until) == Done(0, "out\n", "err\n")
    long = Call([sys.executable, "-c", "print('x' * 300000)"], str(tmp_path), 60)
    assert len(ended(long, wait_until).out) == 300001
    # a child that holds the pipes open is not waited for
    assert ended(Call(["sh", "-c", "sleep 20 & echo $!"], str(tmp_path), 60), wait_until).code == 0


def test_a_call_that_hangs_is_killed_with_its_children(tmp_path, wait_until):
    call = Call(["sh", "-c", "sleep 1000 & echo $!; wait"], str(tmp_path), 1)
    done = ended(call, wait_until)
    assert done.code is None

    def gone():
        try:
            with open(f"/proc/{int(done.out)}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(gone, "the child's end")


def test_has_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nowhere")
    (tmp_path / "there").write_text("")
    assert not has_program("there")
    (tmp_path / "there").chmod(0o755)
    assert has_program("there")


def test_the_ladder():
    now = [0.0]
    ladder = Ladder(lambda: now[0])
    assert ladder.due(None) == ""
    ladder.ask()
    assert ladder.due(None) == "pending"
    ladder.taken()
    assert ladder.due(None) == ""       # nobody knows whether it runs
    assert ladder.due(False) == "term"
    ladder.taken()
    assert ladder.due(False) == ""
    ladder.kill()
    assert [ladder.due(False), ladder.due(False)] == ["kill", "plain"]
    ladder.taken()
    assert ladder.due(False) == ""
    now[0] = 60
    assert ladder.due(True) == "plain"  # pending again: no signal, which would take a minute and a half
