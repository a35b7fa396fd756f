"""What the worker inherits, and what it does not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from potato_training.worker.agent_env import lay_code, own_version, worker_environment
from potato_training.worker.jobdir import JobDir

PASSED = {
    "PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "all",
    "HF_HOME": "/hf", "HF_HUB_OFFLINE": "1", "https_proxy": "http://p", "SSL_CERT_FILE": "/c", "OMP_NUM_THREADS": "2",
    "CONDA_PREFIX": "/conda", "MODULEPATH": "/m", "TOKENIZERS_PARALLELISM": "false",
}
KEPT_BACK = {
    "POTATO_TRAINING_TOKEN": "t", "HF_TOKEN": "t", "HF_HUB_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "k",
    "PYTHONPATH": "/p", "PYTHONHOME": "/p", "LD_PRELOAD": "/evil.so", "DATABASE_URL": "x", "SSL_CERT_PASSWORD": "x",
    "CUDA_API_KEY": "x", "SSH_AUTH_SOCK": "/s", "BASH_ENV": "/x",
}


def test_a_short_list_is_passed_on():
    assert worker_environment({**PASSED, **KEPT_BACK}, {}, "/code") == {**PASSED, "PYTHONPATH": "/code"}


def test_the_jobs_own_variables_come_along_and_win():
    found = worker_environment(PASSED, {"HF_HOME": "/other", "MY_TOKEN": "asked for", "PYTHONPATH": "/x"}, "/code")
    assert (found["HF_HOME"], found["MY_TOKEN"]) == ("/other", "asked for")
    assert found["PYTHONPATH"] == f"/code{os.pathsep}/x"


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV"])
def test_a_server_that_may_not_run_code_here_cannot_say_what_runs(name):
    found = worker_environment({"PATH": "/bin"}, {name: "/evil", "HF_HUB_OFFLINE": "1"}, "/code", trusted=False)
    assert found == {"PATH": "/bin", "HF_HUB_OFFLINE": "1", "PYTHONPATH": "/code"}


def test_the_code_is_laid_once_and_for_the_owner_only(tmp_path):
    jobdir = JobDir(tmp_path / "job")
    jobdir.create()
    old = os.umask(0)
    try:
        code = Path(lay_code(jobdir))
    finally:
        os.umask(old)
    assert (code / "potato_training" / "worker" / "agent_env.py").exists()
    assert own_version() in (code / "potato_training" / "__init__.py").read_text()
    for path in code.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    (code / "potato_training" / "worker" / "mark").touch()
    assert lay_code(jobdir) == str(code)
    assert (code / "potato_training" / "worker" / "mark").exists()


def test_laying_that_was_cut_off_is_done_again(tmp_path):
    jobdir = JobDir(tmp_path / "job")
    half = tmp_path / "job" / "code" / "potato_training" / "worker.1.tmp"
    half.mkdir(parents=True)
    code = Path(lay_code(jobdir))
    assert (code / "potato_training" / "worker" / "__main__.py").exists()
