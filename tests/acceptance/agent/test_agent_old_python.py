"""The agent as it travels: a folder of code under the oldest Python that it promises to run on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from potato_training.worker.agent_env import lay_code
from potato_training.worker.jobdir import JobDir


def old_pythons():
    found = [shutil.which("python3.8"), *sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python"))]
    return [str(path) for path in found if path and runs(path)][:1]


def runs(path):
    """False for a shim that leads nowhere."""
    return subprocess.run([path, "-c", ""], capture_output=True).returncode == 0


@pytest.mark.parametrize("python", old_pythons() or [pytest.param(None, marks=pytest.mark.skip("no Python 3.8 here"))])
def test_a_whole_job_under_python_3_8(bench, tmp_path, python):
    lay_code(JobDir(tmp_path / "far"))
    job = bench.add_job(
        [["event", "status", {"state": "running"}], ["raw", "torn\n"], ["many", 2000], ["predictions", "p\n"],
         ["exit", 0]],
        files={"manifest.json": b"{}\n", "media/ü.txt": b"x"},
    )
    agent = bench.start_agent(python=python, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "far" / "code")})
    assert agent.wait(60) == 0, agent.stderr.read().decode()
    assert job.claims[0]["python"].startswith("3.8.")
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
    assert len(job.worker_events) == 2003
    assert job.predictions == b"p\n"
    job.results.clear()
    taken_up = bench.start_agent(python=python, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "far" / "code")})
    assert taken_up.wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
