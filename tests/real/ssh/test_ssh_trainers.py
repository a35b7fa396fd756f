"""The trainers that people use, through a real sshd."""

from __future__ import annotations

import subprocess

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def libraries(lab):
    """scikit-learn and torch from the tests' own environment, for an interpreter of the same version."""
    account = lab.account("bash")
    account.with_libraries()
    done = subprocess.run(["su", account.name, "-s", "/bin/sh", "-c", "/usr/bin/python3 -c 'import sklearn, skops'"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"/usr/bin/python3 cannot use this environment's scikit-learn: {done.stderr.strip()[-200:]}")
    yield account
    for path in account.home.glob(".local/lib/python*/site-packages/libraries.pth"):
        path.unlink()


def test_sklearn_text(remote, libraries):
    study = remote()
    assert study.potato("training", "check", "gpu-server", "--trainer", "sklearn-text").returncode == 0
    ran = study.potato("training", "run", "--trainer", "sklearn-text")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run = study.runs()[0]
    assert run.facts["software"]["scikit-learn"]
    assert run.facts["result"]["metrics"]
    folder = study.places.run_dir(run.run_id) / "artifacts" / "sentiment"
    assert (folder / "potato.json").exists()
    study.nothing_is_left()
