"""An agent on a login node: it claims from a server that cannot reach it, and submits to the stand-in Slurm."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TRAINERS = Path(__file__).parents[1] / "fixtures" / "trainers"
spec = importlib.util.spec_from_file_location("training_agent", Path(__file__).with_name("test_training_agent.py"))
training_agent = importlib.util.module_from_spec(spec)
spec.loader.exec_module(training_agent)


@pytest.fixture
def shared(wait_until):
    """A folder that is not below /tmp, where an agent would refuse to work."""
    cache = Path.home() / ".cache" / "potato-training-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="shared-", dir=cache))
    yield folder
    # a job that is just ending may still write into it
    wait_until(lambda: shutil.rmtree(folder, ignore_errors=True) or not folder.exists(), "the removal")


class Login:
    """A Station whose agents are started on a login node of Slurm."""

    def __init__(self, station, shared, env):
        self.station, self.study, self.shared, self.env = station, station.study, shared, env
        self.config = shared / "slurm.json"
        self.config.write_text(json.dumps({
            "time": "10", "poll_interval_s": 1, "job_python": sys.executable, "gres": "gpu:1",
            "prelude": [f"export PYTHONPATH={TRAINERS}"], "env": {"FROM_FILE": "yes"}}))

    def agent(self, *more, config=None, workdir=None):
        process = subprocess.Popen(
            [sys.executable, "-m", "potato_training.cli", "training", "agent", "--server",
             f"http://127.0.0.1:{self.station.port}", "--backend", "station", "--workdir", str(workdir or self.shared),
             "--slurm-config", str(config or self.config), *map(str, more)],
            env={**self.study.env, **self.env, "POTATO_TRAINING_TOKEN": self.station.token},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.study.started.append(process)
        return process

    def begun(self, trainer="test-slow", **params):
        """(command, run id, Slurm's id of its job) of a run whose job is there."""
        process, run_id = self.study.train(trainer, "--backend", "station", **params)
        told = self.study.wait_until(lambda: "Submitted SLURM job" in self.study.log(run_id), "the job")
        assert told
        return process, run_id, self.study.log(run_id).partition("Submitted SLURM job ")[2].split()[0]


@pytest.fixture
def login(study, tmp_path, shared, fake_slurm):
    study.configure(backends={"station": {"type": "agent"}, "other": {"type": "agent"}})
    fake_slurm.scenario()
    made = Login(training_agent.Station(study, tmp_path), shared, {
        name: fake_slurm.env[name] for name in ("PATH", "FAKE_SLURM_DIR")})
    made.slurm = fake_slurm
    clock = subprocess.Popen(["fake_slurm", "run", "10"], env=fake_slurm.env)
    yield made
    clock.kill()
    clock.wait()


def test_a_run_from_the_claim_to_the_prelabels(login):
    login.station.serve()
    agent = login.agent("--once")
    process, run_id = login.study.train("test-quick", "--backend", "station")
    assert agent.wait(90) == 0, agent.stdout.read()
    output, code = login.study.finish(process)
    assert code == 0, output
    run = login.study.ended(run_id)
    assert run.state == "succeeded"
    log = login.study.log(run_id)
    assert "Submitted SLURM job " in log and "--gres=gpu:1" in log and "RUNNING on " in log
    assert login.study.places.prelabels.exists()
    (submitted,) = login.slurm.calls("sbatch")
    assert f"--job-name=potato-{run_id}" in submitted["argv"]
    left = login.shared / "station" / "jobs" / run_id
    assert {path.name for path in left.iterdir()} == {"artifacts", "reported"}
    for path in login.slurm.root.rglob("*"):
        assert not path.is_file() or login.station.token.encode() not in path.read_bytes()


def test_a_cancel_ends_the_job(login):
    login.station.serve()
    login.agent()
    process, run_id, job = login.begun(steps=100_000, step_seconds=0.05)
    login.study.reaches(run_id, "running")
    login.study.potato("training", "cancel", run_id, check=True)
    assert login.study.finish(process)[1] == 1
    assert login.study.ended(run_id).state == "cancelled"
    login.study.wait_until(lambda: (login.slurm.job(job) or {"state": "gone"})["state"] not in ("RUNNING", "PENDING"),
                           "the job's end")


def test_an_agent_that_is_killed_is_followed_by_one_that_finds_the_job(login):
    """The job neither ends nor comes twice; the script is made anew and changes nothing about it."""
    login.station.serve()
    first = login.agent()
    process, run_id, _ = login.begun(steps=60, step_seconds=0.05)
    login.study.reaches(run_id, "running")
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = login.agent("--once")
    output, code = login.study.finish(process)
    assert code == 0, output
    assert second.wait(90) == 0
    assert len(login.slurm.calls("sbatch")) == 1


@pytest.mark.parametrize(("change", "words"), [
    ({"config": {"partitoin": "x"}}, "did you mean partition?"),
    ({"workdir": "/tmp/potato-agent"}, "under /tmp, which is local to each node"),
    ({"workdir": "/var/tmp/x"}, "under /var/tmp, which is local to each node"),
    ({"workdir": "/nowhere/100%j"}, "has a % in its path"),
])
def test_what_cannot_work_is_said_at_once(login, change, words):
    if isinstance(change.get("config"), dict):
        path = login.shared / "wrong.json"
        path.write_text(json.dumps(change["config"]))
        change = {"config": path}
    agent = login.agent(**change)
    output = agent.communicate(timeout=90)[0]
    assert agent.returncode == 2 and words in output, output
    assert not Path("/tmp/potato-agent").exists() and not Path("/var/tmp/x").exists()


def test_the_workdir_must_be_named(login):
    asked = subprocess.run(
        [sys.executable, "-m", "potato_training.cli", "training", "agent", "--server", "http://localhost:1",
         "--backend", "station", "--slurm-config", str(login.config)], capture_output=True, text=True, timeout=90,
        env={**login.study.env, "POTATO_TRAINING_TOKEN": "t" * 43})
    assert asked.returncode == 2 and "--slurm-config needs --workdir" in asked.stderr
