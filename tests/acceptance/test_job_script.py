"""A compiled job.sh through sbatch, with a worker that does what the test says: order, traps, verdicts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STUB = Path(__file__).parents[1] / "fixtures" / "stub_worker"


class Job:
    """One job directory on the cluster, its script compiled, its worker the stub."""

    def __init__(self, root, slurm, compiled, wait_until, keys):
        self.root, self.slurm, self.wait_until = root, slurm, wait_until
        root.mkdir(parents=True)
        shutil.copytree(STUB, root / "code")
        keys = {"job_python": sys.executable, **keys}
        (root / "job.sh").write_text(compiled("slurm", **keys).files["job.sh"], encoding="utf-8")
        (root / "spec.json").write_text("{}")

    def submit(self, *options, **more):
        done = self.slurm.run("sbatch", "--parsable", *options, "job.sh", cwd=self.root, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self):
        """Submitted, running, and the worker has said so; the job's id."""
        job_id = self.submit()
        self.slurm.tick()
        self.wait_until(lambda: self.events("started"), "the worker's first event")
        return job_id

    def read(self, name):
        path = self.root / name
        return path.read_text("utf-8") if path.exists() else None

    def events(self, kind=None):
        lines = (self.read("events.jsonl") or "").splitlines()
        return [e for e in map(json.loads, lines) if kind in (None, e["event"])]

    def last_words(self):
        """The line that the agent takes for the reason; bash may have its own say behind it."""
        return [line for line in self.read("stderr.log").splitlines() if line.startswith("potato-training: ")][-1]

    def leave(self, code):
        (self.root / "leave.tmp").write_text(str(code))
        (self.root / "leave.tmp").replace(self.root / "leave")

    def ended(self, job_id, name="exit_code"):
        """The exit code's text, once the scheduler sees the job's end."""
        self.wait_until(lambda: self.slurm.job(job_id)["state"] not in ("RUNNING", "COMPLETING"), "the job's end")
        return self.read(name)


@pytest.fixture
def job(tmp_path, fake_slurm, compiled, wait_until):
    return lambda **keys: Job(tmp_path / "remote dir" / "jobs" / "r1", fake_slurm, compiled, wait_until, keys)


def test_the_worker_gets_the_job_and_the_job_gets_its_code(job, fake_slurm):
    here = job(gres="gpu:2", env={"A": "x $y"}, num_threads=3)
    job_id = here.start()
    assert fake_slurm.job(job_id)["name"] == "potato-example"
    seen = here.events("started")[0]
    assert seen["argv"] == ["--spec", "spec.json"]
    assert seen["cwd"] == str(here.root)
    assert seen["stdin"] == ""
    assert seen["env"]["A"] == "x $y"
    assert seen["env"]["OMP_NUM_THREADS"] == "3"
    assert seen["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"     # the scheduler's choice
    assert here.read("exit_code") is None
    here.leave(0)
    assert here.ended(job_id) == "0\n"
    assert fake_slurm.job(job_id)["state"] == "COMPLETED"
    assert [e["event"] for e in here.events()] == ["started", "left"]
    assert here.read("stderr.log") == "a word on stderr\n"
    assert (here.root / "claim" / "job").read_text() == job_id + "\n"
    for name in ("events.jsonl", "stderr.log", "exit_code", "claim/job"):
        assert (here.root / name).stat().st_mode & 0o777 == 0o600, name
    assert not (here.root / "exit_code.tmp").exists()


@pytest.mark.parametrize("code", [1, 3, 5, 77])
def test_the_workers_exit_code_is_the_jobs(job, fake_slurm, code):
    here = job()
    job_id = here.start()
    here.leave(code)
    assert here.ended(job_id) == f"{code}\n"
    assert fake_slurm.job(job_id)["exit"] == f"{code}:0"
    assert fake_slurm.job(job_id)["state"] == "FAILED"


@pytest.mark.parametrize("how", [["--full", "--signal=TERM"], []])
def test_a_cancelled_worker_saves_and_its_own_code_counts(job, fake_slurm, how):
    here = job()
    job_id = here.start()
    fake_slurm.run("scancel", *how, job_id)
    assert here.ended(job_id) == "4\n"
    assert here.events("stopped")
    assert len(here.events("stopping")) == 1
    assert fake_slurm.job(job_id)["state"] == ("FAILED" if how else "CANCELLED")


def test_the_time_limit(job, fake_slurm):
    here = job(time="1")
    job_id = here.start()
    fake_slurm.tick(60)
    assert here.ended(job_id) == "4\n"
    assert fake_slurm.job(job_id)["state"] == "TIMEOUT"
    assert "DUE TO TIME LIMIT" in here.read("slurm.out")


def test_a_worker_that_ignores_sigterm_is_killed_and_leaves_no_verdict(job, fake_slurm):
    here = job(time="1")
    (here.root / "deaf").touch()
    job_id = here.start()
    fake_slurm.tick(60)
    assert fake_slurm.job(job_id)["state"] == "COMPLETING"
    fake_slurm.tick(30)
    assert here.ended(job_id) is None
    assert fake_slurm.job(job_id)["state"] == "TIMEOUT"


def test_a_requeued_job_begins_anew_beside_its_first_verdict(job, fake_slurm):
    here = job(requeue=True)
    job_id = here.start()
    (here.root / "slurm.out").write_text("kept\n")
    assert fake_slurm.run("scontrol", "requeue", job_id).returncode == 0
    here.wait_until(lambda: fake_slurm.job(job_id)["state"] == "PENDING", "the job back in the queue")
    assert here.read("exit_code") == "4\n"
    fake_slurm.become(job_id, "RUNNING")
    here.wait_until(lambda: len(here.events("started")) == 2, "the second attempt")
    here.leave(0)
    assert here.ended(job_id, "exit_code.1") == "0\n"
    assert here.read("exit_code") == "4\n"
    assert [e["attempt"] for e in here.events("started")] == [1, 2]
    assert here.read("slurm.out").startswith("kept\n")


def test_without_requeue_the_scheduler_is_told_so(job, fake_slurm):
    here = job()
    job_id = here.start()
    assert fake_slurm.run("scontrol", "requeue", job_id).returncode == 1
    here.leave(0)
    here.ended(job_id)


def test_a_twin_ends_unharmed(job, fake_slurm):
    here = job()
    first = here.start()
    twin = here.submit()
    fake_slurm.tick()
    here.wait_until(lambda: fake_slurm.job(twin)["state"] == "COMPLETED", "the twin's end")
    assert here.read("exit_code") is None
    assert len(here.events()) == 1
    assert f"belongs to job {first}" in here.read("slurm.out")
    here.leave(0)
    assert here.ended(first) == "0\n"


def test_a_claim_that_nobody_signed_belongs_to_somebody_else(job, fake_slurm):
    here = job()
    (here.root / "claim").mkdir()
    job_id = here.submit()
    fake_slurm.tick()
    here.wait_until(lambda: fake_slurm.job(job_id)["state"] == "COMPLETED", "the job's end")
    assert here.events() == []
    assert here.read("exit_code") is None


@pytest.mark.parametrize(("prelude", "reason"), [
    (["module load cuda/99"], "prelude failed (exit 127): module load cuda/99"),
    (["true", "if true; then", "  false", "fi"], "prelude failed (exit 1):   false"),
    (["load() { grep -q x /dev/null; }", "load"], "prelude failed (exit 1): load"),
    (["( exit 9 )"], "prelude failed (exit 9): ( exit 9 )"),
    (["exit 0"], "prelude failed (exit 0): it ended the job at: exit 0"),
    (["true", "if true; then"], "prelude failed (exit 2): bash cannot parse it"),
    (["true", "echo 'never closed"], "prelude failed (exit 2): bash cannot parse it"),
    (["cat <<EOF"], "prelude failed (exit 0): it ended the job at: cat <<EOF"),
    (["source /nowhere/activate"], "prelude failed (exit 1): it ended the job at: source /nowhere/activate"),
    (["fail_in_subshell=$(exit 4)"], "prelude failed (exit 4): fail_in_subshell=$(exit 4)"),
])
def test_a_failing_prelude_is_the_jobs_end_with_a_reason(job, fake_slurm, prelude, reason):
    here = job(prelude=prelude)
    job_id = here.submit()
    fake_slurm.tick()
    assert here.ended(job_id) == "1\n"
    assert fake_slurm.job(job_id)["exit"] == "1:0"
    assert here.last_words() == "potato-training: " + reason
    assert here.events() == []


@pytest.mark.parametrize(("prelude", "reason"), [
    (["true", "exit 0"], "prelude failed: it ended the job at: exit 0"),
    (["if true; then"], "prelude failed (exit 2): bash cannot parse it"),
    (["cat <<EOF"], "prelude failed (exit 0): it ended the job at: cat <<EOF"),
    (["false"], "prelude failed (exit 1): false"),
])
def test_what_a_login_shell_does_at_its_end_is_not_the_prelude(job, fake_slurm, tmp_path, prelude, reason):
    """Its `exit` reads ~/.bash_logout, and many a distribution's ends in a test that fails."""
    (tmp_path / ".bash_logout").write_text("true\nfalse\n")
    here = job(prelude=prelude)
    job_id = here.submit(env={**fake_slurm.env, "HOME": str(tmp_path)})
    fake_slurm.tick()
    assert here.ended(job_id) == "1\n"
    assert here.last_words() == "potato-training: " + reason


@pytest.mark.parametrize("prelude", [
    ["set -uC", "cd /", "umask 0", "trap 'echo mine' EXIT", "trap '' TERM"],
    ["f() { false || true; }", "f", "x=$(false; echo y)", "echo \"$x\"", "! false", "false || true"],
    ["if [ -e /dev/null ]; then", "  export DONE=yes", "fi"],
    ["cat > made <<EOF", "#SBATCHES are fine here, and $HOME", "EOF"],
    ["potato_code=9 rc=1 python=x worker=y", "unset HOME_OF_NOTHING", "exec 3>&1"],
])
def test_a_prelude_may_do_what_it_likes_to_the_shell(job, fake_slurm, prelude):
    here = job(prelude=prelude)
    job_id = here.start()
    assert here.events("started")[0]["cwd"] == str(here.root)
    fake_slurm.run("scancel", "--full", "--signal=TERM", job_id)
    assert here.ended(job_id) == "4\n"
    assert (here.root / "exit_code").stat().st_mode & 0o777 == 0o600


def test_sigterm_in_the_prelude(job, fake_slurm):
    here = job(prelude=["touch inside", "sleep 100"])
    job_id = here.submit()
    fake_slurm.tick()
    here.wait_until((here.root / "inside").exists, "the prelude")
    fake_slurm.run("scancel", "--full", "--signal=TERM", job_id)
    assert here.ended(job_id) == "4\n"
    assert "stopped before the worker started" in here.read("stderr.log")
    assert here.events() == []


@pytest.mark.parametrize(("python", "code", "reason"), [
    ("/nowhere/bin/python", 3, "/nowhere/bin/python was not found on node07"),
    ("no-such-python", 3, "no-such-python was not found on node07"),
    ("/bin/false", 3, "/bin/false on node07 does not run, or is older than Python 3.8"),
])
def test_an_interpreter_that_is_not_there(job, fake_slurm, python, code, reason):
    here = job(job_python=python, prelude=["true"])
    job_id = here.submit()
    fake_slurm.tick()
    assert here.ended(job_id) == f"{code}\n"
    assert here.read("stderr.log") == f"potato-training: {reason}\n"


@pytest.mark.parametrize(("content", "mode", "reason"), [
    ("A=1\nnonsense\n", 0o600, "line 2 is not KEY=VALUE"),
    ("A-B=1\n", 0o600, "line 1 is not KEY=VALUE"),
    ("1A=1\n", 0o600, "line 1 is not KEY=VALUE"),
    ("=1\n", 0o600, "line 1 is not KEY=VALUE"),
    ("A=1\n", 0o640, "can be read by others: chmod 600 it"),
    ("A=1\n", 0o604, "can be read by others: chmod 600 it"),
    (None, 0, "cannot be read on "),
])
def test_an_env_file_that_will_not_do(job, fake_slurm, tmp_path, content, mode, reason):
    secrets = tmp_path / "my secrets"
    if content is not None:
        secrets.write_text(content)
        secrets.chmod(mode)
    here = job(env_file=str(secrets))
    job_id = here.submit()
    fake_slurm.tick()
    assert here.ended(job_id) == "1\n"
    assert reason in here.read("stderr.log")
    assert f"env_file {secrets}" in here.read("stderr.log")


def test_the_environment_of_the_login_shell_changes_nothing_that_a_reader_sees(job, fake_slurm):
    """SBATCH_* are the launch script's to remove; here it is what the job inherits."""
    here = job(env={"PYTHONPATH": "/mine"})
    harmful = {"PYTHONPATH": "/theirs", "PYTHONHOME": "/theirs", "VIRTUAL_ENV": "/theirs", "OMP_NUM_THREADS": "1",
               "CONDA_PREFIX": "/theirs", "CONDA_DEFAULT_ENV": "theirs", "CONDA_SHLVL": "2",
               "SLURM_RESTART_COUNT": "7", "CDPATH": "/tmp"}
    job_id = here.submit(env={**fake_slurm.env, **harmful})
    fake_slurm.tick()
    here.wait_until(lambda: here.events("started"), "the worker")
    seen = here.events("started")[0]
    assert seen["env"]["PYTHONPATH"] == "code:/mine"
    assert not {"PYTHONHOME", "VIRTUAL_ENV"} & set(seen["env"])
    assert not [name for name in seen["env"] if name.startswith("CONDA_")]
    assert str(here.root / "code") in seen["path"]
    here.leave(0)
    assert here.ended(job_id) == "0\n"


def test_a_startup_file_that_sets_what_slurm_sets(job, fake_slurm, tmp_path):
    told = {"SLURM_JOB_ID": "777", "SLURM_JOBID": "777", "SLURM_RESTART_COUNT": "3", "SLURM_SUBMIT_DIR": "/tmp",
            "SLURMD_NODENAME": "elsewhere", "CUDA_VISIBLE_DEVICES": "7"}
    lines = "".join(f"export {name}={value}\n" for name, value in told.items())
    (tmp_path / ".profile").write_text(f"{lines}cd /\nexport MINE=kept\nset -euC\n")
    here = job(gres="gpu:1")
    for name in ("worker.pid.tmp", "exit_code.tmp"):  # of an attempt that was killed, in the way of noclobber
        (here.root / name).touch()
    job_id = here.submit(env={**fake_slurm.env, "HOME": str(tmp_path)})
    fake_slurm.tick()
    here.wait_until(lambda: here.events("started"), "the worker")
    seen = here.events("started")[0]["env"]
    assert (here.root / "claim" / "job").read_text() == job_id + "\n"
    assert {name: seen.get(name) for name in told} == {
        "SLURM_JOB_ID": job_id, "SLURM_JOBID": job_id, "SLURM_RESTART_COUNT": None, "SLURM_SUBMIT_DIR": str(here.root),
        "SLURMD_NODENAME": fake_slurm.job(job_id)["node"], "CUDA_VISIBLE_DEVICES": "0"}
    assert seen["MINE"] == "kept"
    fake_slurm.run("scancel", "--full", "--signal=TERM", job_id)
    assert here.ended(job_id) == "4\n"


def test_two_signals_at_any_moment_give_the_workers_code(job, fake_slurm):
    here = job()
    job_id = here.start()
    for _ in range(2):
        fake_slurm.run("scancel", "--full", "--signal=TERM", job_id)
    assert here.ended(job_id) == "4\n"


QUICK = """import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(4))
open("ready", "w").close()
while True:
    time.sleep(1)
"""


def test_a_worker_that_ends_in_the_instant_of_the_signal_keeps_its_code(job, wait_until):
    """bash 5.2 forgets one such code in ten when it waits for the worker itself."""
    here = job()
    (here.root / "code" / "potato_training" / "worker" / "__main__.py").write_text(QUICK)
    codes = []
    for _ in range(20):
        for name in ("ready", "exit_code", "claim/job", "claim"):
            path = here.root / name
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        shell = subprocess.Popen(["bash", "job.sh"], cwd=here.root, start_new_session=True)
        wait_until((here.root / "ready").exists, "the worker")
        os.killpg(shell.pid, signal.SIGTERM)
        codes.append((shell.wait(60), here.read("exit_code")))
    assert codes == [(4, "4\n")] * 20
