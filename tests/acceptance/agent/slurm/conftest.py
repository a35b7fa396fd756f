"""The agent on a login node of the stand-in Slurm."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[3] / "fixtures" / "slurm_agent" / "slurm_bench.py"


@pytest.fixture
def slurm(bench, fake_slurm, compiled):
    spec = importlib.util.spec_from_file_location("slurm_bench", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.SlurmBench(bench, compiled, fake_slurm.env, fake_slurm.run)
    made.fake = fake_slurm
    yield made
    made.close()
