"""The trainers that people use, through a real sshd."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PYTHON = "/usr/bin/python3"
#: Importing torch takes a busy machine a minute, and happens three times in a run.
PATIENCE_S = 900


def with_libraries(study):
    """scikit-learn and torch from the tests' own environment, for an interpreter of the same version."""
    account = study.account
    account.with_libraries()
    done = subprocess.run(["su", account.name, "-s", "/bin/sh", "-c", f"{PYTHON} -c 'import sklearn, skops'"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{PYTHON} of another account cannot use this environment's scikit-learn (another version, or "
                    f"directories that others may not enter): {done.stderr.strip()[-200:]}")
    return study


def test_sklearn_text(remote):
    study = with_libraries(remote())
    looked = study.potato("training", "check", "gpu-server", "--trainer", "sklearn-text", timeout=PATIENCE_S)
    assert looked.returncode == 0, looked.stdout + looked.stderr
    ran = study.potato("training", "run", "--trainer", "sklearn-text", timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run = study.runs()[0]
    assert run.facts["software"]["scikit-learn"]
    assert run.facts["result"]["metrics"]
    folder = study.places.run_dir(run.run_id) / "artifacts" / "sentiment"
    assert (folder / "potato.json").exists()
    study.nothing_is_left()


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory):
    """A model that trains in seconds, where every account can read it. Made once for these versions."""
    if not (find_spec("torch") and find_spec("transformers")):
        pytest.skip("needs torch and transformers")
    path = ROOT / "tests" / "acceptance" / "worker" / "conftest.py"
    spec = importlib.util.spec_from_file_location("worker_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory(prefix="potato-tiny-") as folder:
        Path(folder).chmod(0o755)
        told = (module.MAKE, module.MODEL_WORDS, version("torch"), version("transformers"), version("tokenizers"))
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "potato-training-tests"
        cache.mkdir(parents=True, exist_ok=True)
        made = cache / f"models-{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"
        with (cache / "models.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                new = made.with_suffix(".new")
                shutil.rmtree(new, ignore_errors=True)
                subprocess.run([sys.executable, "-c", module.MAKE, str(new), module.MODEL_WORDS], check=True,
                               capture_output=True)
                new.rename(made)
        shutil.copytree(made, folder, dirs_exist_ok=True)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield f"{folder}/bert"


def test_hf_text_classification(remote, tiny_bert):
    study = with_libraries(remote())
    ran = study.potato("training", "run", "--trainer", "hf-text-classification", "--param", f"model={tiny_bert}",
                       "--param", "epochs=1", timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run = study.runs()[0]
    assert run.facts["software"]["torch"]
    assert list((study.places.run_dir(run.run_id) / "artifacts" / "sentiment").rglob("*.safetensors"))
    study.nothing_is_left()
