"""An agent with --slurm-config on the login node of a real Slurm."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

TRAINERS = Path(__file__).parents[2] / "fixtures" / "trainers"


@pytest.fixture
def shared(wait_until):
    """A folder that is not below /tmp, where an agent would refuse to work."""
    cache = Path.home() / ".cache" / "potato-training-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="shared-", dir=cache))
    yield folder
    # a job that is just ending may still write into it
    wait_until(lambda: shutil.rmtree(folder, ignore_errors=True) or not folder.exists(), "the removal")


def test_a_run_and_a_cancel(far_study, far_class, slurm_cluster, tmp_path, shared):
    study = far_study()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    far = far_class(study, tmp_path, address=f"http://127.0.0.1:{port}", listen=("127.0.0.1", port)).serve()
    config = shared / "slurm.json"
    config.write_text(json.dumps({
        "time": "10", "poll_interval_s": 1, "job_python": sys.executable, "gres": "gpu:1", "partition": "main",
        "prelude": [f"export PYTHONPATH={TRAINERS}"]}))
    env = {name: slurm_cluster.env[name] for name in ("SLURM_CONF", "LC_ALL")}
    far.agent("--workdir", shared, "--slurm-config", config, env=env)
    process, run_id = study.train("test-quick", "--backend", "station")
    output, code = study.finish(process)
    assert code == 0, output
    assert study.ended(run_id).state == "succeeded" and study.places.prelabels.exists()
    job = study.log(run_id).partition("Submitted SLURM job ")[2].split()[0]
    assert slurm_cluster.job(job)["JobName"] == f"potato-{run_id}"

    process, run_id = study.train("test-slow", "--backend", "station", steps=100_000, step_seconds=0.1)
    study.reaches(run_id, "running")
    job = study.log(run_id).partition("Submitted SLURM job ")[2].split()[0]
    assert study.store().wish(run_id, "cancel") == "left"
    assert study.finish(process)[1] == 1
    assert study.ended(run_id).state == "cancelled"
    slurm_cluster.wait_empty(job)
