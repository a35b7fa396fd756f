"""The agent on the login node of a real Slurm."""

from __future__ import annotations

import importlib.util
import secrets
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def slurm(tmp_path, wait_until, slurm_cluster, compiled):
    bench = load(TESTS / "acceptance" / "agent" / "conftest.py", "agent_bench").Bench(tmp_path, wait_until)
    made = load(TESTS / "fixtures" / "slurm_agent" / "slurm_bench.py", "slurm_bench").SlurmBench(
        bench, compiled, slurm_cluster.env, slurm_cluster.run)
    made.cluster = slurm_cluster
    made.run_id = "run-" + secrets.token_hex(6)     # the cluster remembers the jobs of earlier tests
    yield made
    bench.close()
    slurm_cluster.cancel_all()


# --- whole runs, through a real sshd -----------------------------------------------------------------

ssh = load(TESTS / "real" / "ssh" / "conftest.py", "real_ssh")
lab = ssh.lab
tiny_bert = load(TESTS / "real" / "ssh" / "test_ssh_trainers.py", "real_ssh_trainers").tiny_bert


class Login(ssh.Remote):
    """A project whose backend ``gpu-server`` is the real Slurm, reached through gpu.example.org by a normal user."""

    def __init__(self, root, wait_until, lab, account, cluster, **options):
        self.cluster = cluster
        path = {"PATH": f"{cluster.home}/bin:/usr/local/bin:/usr/bin:/bin"} if cluster.home else {}
        self.keys = {"env": {"SLURM_CONF": str(cluster.conf), **path}, "poll_interval_s": 5}
        super().__init__(root, wait_until, lab, account, **options)
        self.bounds()

    def bounds(self, **seconds):
        super().bounds(**{"slurm_doubt_s": 5, "slurm_settle_s": 3, **seconds})

    def backend(self, **keys):
        import yaml

        self.keys.update(keys)
        config = yaml.safe_load(self.config.read_text())
        config["model_training"]["backends"] = {"gpu-server": {
            "type": "slurm", "host": "gpu.example.org", "python": ssh.PYTHON, "remote_dir": "~/pt", **self.keys}}
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))

    def job_ids(self, run_id):
        """Every job of the run that the controller has, ended ones included."""
        said = self.cluster.run(["squeue", "-h", "-t", "all", "-n", f"potato-{run_id}", "-o", "%i"], check=False)
        return said.stdout.split()

    def job_id(self, run_id):
        return self.wait_until(lambda: self.job_ids(run_id), "the job")[0]

    def close(self):
        super().close()
        queue = ["squeue", "-h", "-u", self.account.name]
        for how in ([], ["--full", "--signal=KILL", "--state=RUNNING"]):
            self.cluster.run(["scancel", *how, f"--user={self.account.name}"], check=False)
        self.wait_until(lambda: not self.cluster.run(queue).stdout, "the end of all jobs")

    def nothing_is_left(self):
        super().nothing_is_left()
        said = self.cluster.run(["squeue", "-h", "-u", self.account.name, "-o", "%i %T"]).stdout
        assert not [line for line in said.splitlines() if not line.endswith("COMPLETING")], said


@pytest.fixture
def login(lab, project, wait_until, slurm_cluster):
    """``login(time="5", ...)``: a Login whose backend has these keys."""
    made = []

    def make(**keys):
        account = lab.account("login")
        account.clean()
        study = Login(project("review-project"), wait_until, lab, account, slurm_cluster)
        study.backend(**keys)
        made.append(study)
        return study

    yield make
    for study in made:
        study.close()
        study.account.clean()
