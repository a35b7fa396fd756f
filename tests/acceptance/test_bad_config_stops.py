"""A mistake in the config stops every command at its start, with the lines that validate prints."""

from pathlib import Path

import pytest

BAD = "model_training:\n  enabled: true\n  retain_runs: many\n  bakcend: local\n"
LINES = [
    "config.yaml:3:16: error: model_training.retain_runs: retain_runs is many, where a whole number is expected",
    "config.yaml:4:3: error: model_training.bakcend: unknown key 'bakcend'; did you mean backend?",
]


@pytest.mark.parametrize("command", [
    ["validate"], ["compile", "--backend", "local"], ["training", "run"], ["training", "check", "local"],
], ids=" ".join)
def test_a_typo_stops(potato, tmp_path, command):
    (tmp_path / "config.yaml").write_text(BAD)
    ran = potato(*command, cwd=tmp_path)
    assert ran.returncode == 1
    said = ran.stdout if command == ["validate"] else ran.stderr
    assert [line for line in said.splitlines() if "error:" in line] == LINES
    assert "Traceback" not in ran.stdout + ran.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.yaml"]


def test_the_configs_that_ship_pass_strict(potato):
    root = Path(__file__).parents[2]
    configs = [*root.glob("examples/*/config.yaml"), *root.glob("tests/fixtures/projects/*/config.yaml")]
    assert len(configs) >= 3
    ran = potato("validate", "--strict", "--training-only", *configs)
    assert ran.returncode == 0, ran.stdout
