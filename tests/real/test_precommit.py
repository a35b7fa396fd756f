"""The hooks of .pre-commit-hooks.yaml, by pre-commit itself on a repository of its own."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "tests" / "fixtures" / "configs"

pytestmark = [pytest.mark.real, pytest.mark.slow]


def git(directory, *arguments):
    return subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments], cwd=directory,
                          check=True, capture_output=True, text=True, timeout=120).stdout.strip()


@pytest.fixture(scope="module")
def pre_commit(tmp_path_factory):
    """pre-commit in an environment of its own; skipped where the package index cannot be reached."""
    place = tmp_path_factory.mktemp("pre-commit")
    venv.create(place / "venv", with_pip=True)
    python = place / "venv" / "bin" / "python"
    # Most of what is installed is never imported: what is, is compiled then.
    env = {**os.environ, "PRE_COMMIT_HOME": str(place / "cache"), "GIT_CONFIG_GLOBAL": os.devnull, "NO_COLOR": "1",
           "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PIP_NO_COMPILE": "1"}
    got = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "pre-commit"],
                         capture_output=True, text=True, timeout=600, env=env)
    if got.returncode:
        pytest.skip(f"pre-commit could not be installed: {got.stderr[-300:]}")

    def run(directory, *arguments):
        return subprocess.run([python, "-m", "pre_commit", *arguments], cwd=directory, env=env, capture_output=True,
                              text=True, timeout=900)

    return run


@pytest.fixture(scope="module")
def hooks(tmp_path_factory):
    """This working tree as a repository with one commit, so that the hooks are those that stand here."""
    place = tmp_path_factory.mktemp("hooks") / "potato-training"
    names = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for name in names:
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    git(place, "init", "-q")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "x")
    return place, git(place, "rev-parse", "HEAD")


def test_both_hooks_pass_good_configs_and_stop_bad_ones(pre_commit, hooks, tmp_path):
    place, commit = hooks
    (tmp_path / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {place}\n  rev: {commit}\n  hooks:\n  - id: potato-validate\n  - id: potato-compile-check\n")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(CONFIGS / "good" / "tutorial.yaml", tmp_path / name / "config.yaml")
    (tmp_path / "other.yaml").write_text("model_training: no config of Potato's\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    good = pre_commit(tmp_path, "run", "--all-files", "--verbose")
    assert good.returncode == 0, good.stdout + good.stderr
    # Both files in one call of each hook, and the third, which is no config, in none.
    assert good.stdout.count("one/config.yaml: ok") == 1
    assert good.stdout.count("two/config.yaml: ok") == 1
    assert "all clean" in good.stdout
    assert "other.yaml" not in good.stdout
    shutil.copy(CONFIGS / "bad" / "slurm-time-hours.yaml", tmp_path / "two" / "config.yaml")
    git(tmp_path, "add", "-A")
    bad = pre_commit(tmp_path, "run", "--all-files")
    assert bad.returncode == 1
    assert "two/config.yaml:16:13: error: model_training.backends.cluster.time: '1h' is not a Slurm time" in bad.stdout
    # A warning stops the hook as well, since its entry says --strict.
    shutil.copy(CONFIGS / "bad" / "slurm-time-twelve-hours.yaml", tmp_path / "two" / "config.yaml")
    git(tmp_path, "add", "-A")
    assert pre_commit(tmp_path, "run", "potato-validate", "--all-files").returncode == 1
    assert pre_commit(tmp_path, "run", "potato-compile-check", "--all-files").returncode == 0
