"""A project whose runs go to the stand-in Slurm, through a stand-in for ssh."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).parents[2]


def acceptance():
    """The helpers of the acceptance tests."""
    spec = importlib.util.spec_from_file_location("acceptance_helpers", TESTS / "acceptance" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


AT_ONCE = [{"after": 0, "state": "RUNNING", "node": "node07"}]


class Cluster(acceptance().Study):
    """``fake``: the Slurm. The login node is login.example.org, its home directory ``home``."""

    def __init__(self, root, wait_until, fake):
        super().__init__(root, wait_until)
        self.fake = fake
        self.home = root / "home"
        self.home.mkdir()
        self.login_env = {}
        self.far = {"heartbeat_timeout_s": 30, "prelude": [f"export PYTHONPATH={TESTS / 'fixtures' / 'trainers'}"]}
        self.bounds()
        self.backend()
        self.configure(backend="cluster", grace_seconds=3)
        self.clocks = [subprocess.Popen(["fake_slurm", "run", "10"], env=fake.env)]
        fake.scenario(life=AT_ONCE)

    def bounds(self, **seconds):
        super().bounds(**{"slurm_doubt_s": 1, "slurm_settle_s": 1, **seconds})

    def backend(self, **keys):
        self.far.update(keys)
        entry = {"type": "slurm", "host": "login.example.org", "remote_dir": "~/pt", "python": sys.executable,
                 "env": {"PATH": self.fake.env["PATH"], "FAKE_SLURM_DIR": str(self.fake.root)}, **self.far}
        config = yaml.safe_load(self.config.read_text())
        config["model_training"]["backends"] = {"cluster": entry}
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))

    def login_shell(self, **variables):
        """What a login on the login node finds in its environment."""
        self.login_env.update(variables)
        self.env["FAKE_HOST_ENV"] = "\n".join(f"{name}={value}" for name, value in self.login_env.items())

    @property
    def jobs(self):
        return self.home / "pt" / "jobs"

    def slurm_jobs(self):
        return self.fake.state()["jobs"]

    def submitted(self):
        return self.fake.state()["submitted"]

    def nothing_is_left(self):
        self.wait_until(lambda: not self.processes(), "the end of all processes")
        assert self.store().releases() == []
        assert not self.jobs.exists() or list(self.jobs.iterdir()) == []
        alive = {job["state"] for job in self.slurm_jobs().values()} - {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT",
                                                                        "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"}
        assert not alive

    def close(self):
        super().close()
        for clock in self.clocks:
            clock.kill()
            clock.wait()


@pytest.fixture
def cluster(project, wait_until, fake_slurm):
    made = Cluster(project("review-project"), wait_until, fake_slurm)
    made.env.update(PATH=f"{TESTS / 'fixtures' / 'fake_ssh'}:{made.env['PATH']}", FAKE_HOST_HOME=str(made.home),
                    FAKE_HOST_ENV="")
    yield made
    made.close()
