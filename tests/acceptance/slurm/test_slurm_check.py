"""What ``check`` says of a cluster, and what a run says when it cannot start there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def checked(cluster):
    """A cluster whose home directory is not under /tmp: that would be a node's own."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache.mkdir(parents=True, exist_ok=True)
    cluster.home = Path(tempfile.mkdtemp(prefix="potato-home-", dir=cache))
    cluster.env["FAKE_HOST_HOME"] = str(cluster.home)
    yield cluster
    shutil.rmtree(cluster.home)


def check(cluster, *more):
    ran = cluster.potato("training", "check", "cluster", *more)
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran


def test_a_cluster_where_a_run_could_start(checked):
    checked.fake.scenario(partitions={"gpu": {"default": True, "max_time": 7200}})
    checked.backend(partition="gpu", time="2:00:00", job_python="/only/on/nodes/python")
    ran = check(checked, "--trainer", "sklearn-text")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "cluster: login.example.org is " in ran.stdout
    assert "slurm-wlm 22.05.8: " in ran.stdout
    assert "sbatch takes the job: to start at 2026-" in ran.stdout
    assert "jobs run /only/on/nodes/python, which the login node does not have" in ran.stdout
    assert "what the compute nodes have installed cannot be seen from here; sklearn-text needs " in ran.stdout
    assert checked.slurm_jobs() == {}
    assert list(checked.home.rglob("*.tmp")) == []
    facts = json.loads(check(checked, "--json").stdout)
    assert facts["ok"] is True
    assert facts["test_only"]["start"].startswith("2026-")
    assert set(facts["programs"]) == {"sbatch", "squeue", "scancel", "scontrol"}


@pytest.mark.parametrize(("scenario", "keys", "reason"), [
    ({}, {"partition": "nope"}, "sbatch refuses the job: invalid partition specified: nope; Invalid partition name"),
    ({"account": ["lab"]}, {"account": "x"}, "sbatch refuses the job: Invalid account or account/partition"),
    ({"gres": {"gpu": 2}}, {"gres": "gpu:9"}, "sbatch refuses the job: Requested node configuration is not available"),
    ({"partitions": {"short": {"default": True, "max_time": 1800}}}, {"time": "1:00:00"},
     "time 1:00:00 is above the MaxTime of partition short, 00:30:00: the job would wait for ever"),
    ({"calls": {"sbatch": [{"argv": "--test-only", "act": False, "rc": 1, "stderr":
      "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n"}]}}, {},
     "cannot reach Slurm: Batch job submission failed: Unable to contact slurm controller"),
    ({}, {"prelude": ["module load cuda", "if true; then"]},
     "bash cannot parse the prelude: line 3: syntax error"),
], ids=["partition", "account", "gres", "time", "controller", "prelude"])
def test_what_would_stop_a_run(checked, scenario, keys, reason):
    checked.fake.scenario(**scenario)
    checked.backend(**keys)
    ran = check(checked)
    assert ran.returncode == 1
    assert reason in ran.stdout
    assert checked.slurm_jobs() == {}


def test_a_remote_dir_that_cannot_be_written_to(checked):
    """No word of the socket, which needs a directory there."""
    (checked.home / "file").write_text("")
    checked.backend(remote_dir="~/file/pt")
    ran = check(checked)
    assert ran.returncode == 1
    assert f"cannot write to {checked.home}/file/pt" in ran.stdout
    assert "ssh to" not in ran.stdout
    assert "mend it on the host, or the key of the config that names it" in ran.stdout


def test_a_home_directory_that_no_other_node_sees(cluster):
    home = Path(tempfile.mkdtemp(prefix="potato-home-", dir="/tmp"))
    cluster.env["FAKE_HOST_HOME"] = str(home)
    ran = check(cluster)
    shutil.rmtree(home)
    assert ran.returncode == 1
    assert f"remote_dir is {home}/pt, which each node has for itself" in ran.stdout


def test_an_sbatch_that_does_not_know_the_option_is_a_note(checked):
    checked.fake.scenario(calls={"sbatch": [{
        "argv": "--test-only", "act": False, "rc": 255,
        "stderr": "sbatch: unrecognized option '--test-only'\nTry \"sbatch --help\" for more information\n"}]})
    ran = check(checked)
    assert ran.returncode == 0
    assert "note: sbatch does not know --test-only here" in ran.stdout


def test_a_wrapper_that_prints_numbers_cancels_nothing(checked):
    """Another job of the user's has that number."""
    checked.fake.run("sbatch", "--hold", input="#!/bin/sh\ntrue\n", cwd=checked.root)
    (job_id,) = checked.slurm_jobs()
    checked.fake.scenario(calls={"sbatch": [{"argv": "--test-only", "stdout_before": f"{job_id}\n"}]})
    ran = check(checked)
    assert ran.returncode == 0, ran.stdout
    assert "sbatch takes the job" in ran.stdout
    assert checked.fake.job(job_id)["state"] == "PENDING"


def without(cluster, program):
    """PATH as a login shell without that program has it."""
    folder = cluster.root / "bin"
    folder.mkdir()
    for path in cluster.fake.programs.iterdir():
        if path.name != program:
            (folder / path.name).symlink_to(path)
    for name in os.listdir("/usr/bin"):
        if name not in ("sbatch", "squeue", "scancel", "scontrol"):
            (folder / name).symlink_to(f"/usr/bin/{name}")
    cluster.backend(env={"PATH": str(folder), "FAKE_SLURM_DIR": str(cluster.fake.root)})


@pytest.mark.parametrize("program", ["sbatch", "squeue", "scancel"])
def test_a_login_node_without_one_of_the_programs(checked, program):
    without(checked, program)
    words = f"login.example.org has no {program} on PATH, so it cannot submit jobs"
    for ran in (check(checked), checked.potato("training", "run", "--trainer", "test-quick")):
        assert ran.returncode == 1
        assert words in ran.stdout
        assert "set PATH under `env`" in ran.stdout + ran.stderr
    checked.nothing_is_left()


def test_without_scontrol_a_run_goes_on(checked):
    without(checked, "scontrol")
    ran = check(checked)
    assert ran.returncode == 0, ran.stdout
    assert "note: there is no scontrol" in ran.stdout
    assert checked.potato("training", "run", "--trainer", "test-quick").returncode == 0
    checked.nothing_is_left()
