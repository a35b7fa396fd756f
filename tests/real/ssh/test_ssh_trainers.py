"""The trainers that people use, through a real sshd."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[3]


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


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory):
    """A model that trains in seconds, where every account can read it."""
    pytest.importorskip("torch")
    path = ROOT / "tests" / "acceptance" / "worker" / "test_worker_hf.py"
    spec = importlib.util.spec_from_file_location("worker_hf", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory(prefix="potato-tiny-") as folder:
        Path(folder).chmod(0o755)
        subprocess.run([sys.executable, "-c", module.MAKE, folder, " ".join(module.WORDS)], check=True,
                       capture_output=True)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield f"{folder}/bert"


def test_hf_text_classification(remote, libraries, tiny_bert):
    study = remote()
    ran = study.potato("training", "run", "--trainer", "hf-text-classification", "--param", f"model={tiny_bert}",
                       "--param", "epochs=1", timeout=400)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run = study.runs()[0]
    assert run.facts["software"]["torch"]
    assert list((study.places.run_dir(run.run_id) / "artifacts" / "sentiment").rglob("*.safetensors"))
    study.nothing_is_left()
