"""`potato validate` beside the released Potato, whose findings it brings along."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
GOOD = ROOT / "tests" / "fixtures" / "configs" / "good"


@pytest.fixture
def validate(potato_python):
    """Runs ours with Potato's packages beside it; the answer's JSON."""
    packages = next(potato_python.parents[1].glob("lib/python3*/site-packages"))

    def run(config, *arguments):
        ran = subprocess.run(
            [sys.executable, "-m", "potato_training.cli", "validate", str(config), "--json", *arguments],
            env={**os.environ, "PYTHONPATH": str(packages)}, capture_output=True, text=True, timeout=300)
        value = json.loads(ran.stdout)
        assert value["ok"] == (ran.returncode == 0)
        return value

    return run


@pytest.mark.parametrize("name", ["tutorial", "review-project", "multi-project"])
def test_configs_that_both_accept_pass_strict(validate, name, tmp_path):
    (tmp_path / "config.yaml").write_text((GOOD / f"{name}.yaml").read_text())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reviews.json").write_text('[{"id": "1", "text": "x"}]')
    value = validate(tmp_path / "config.yaml", "--strict")
    assert value["ok"]
    assert not value["warnings"]


def test_a_key_that_potato_does_not_know_is_its_warning_and_can_be_acknowledged(validate, tmp_path):
    config = tmp_path / "config.yaml"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reviews.json").write_text('[{"id": "1", "text": "x"}]')
    text = (GOOD / "tutorial.yaml").read_text() + "\nmy_own_key: 1\n"
    config.write_text(text)
    value = validate(config, "--strict")
    assert [(f["path"], f["line"]) for f in value["warnings"]] == [("my_own_key", text.count("\n"))]
    assert not validate(config, "--strict", "--training-only")["warnings"]
    config.write_text(text + "validation: {acknowledge: [\"config key 'my_own_key'\"]}\n")
    value = validate(config, "--strict")
    assert value["ok"]
    assert [f["path"] for f in value["acknowledged"]] == ["my_own_key"]
