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
