"""`potato validate` beside an installed Potato, played by a program of its module's name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = Path(__file__).parents[1] / "fixtures" / "configs" / "good"

SAID = {
    "config_file": "config.yaml", "ok": False,
    "errors": ["Missing required configuration fields: a, b",
               "annotation_schemes[0].labels[1] came through as a boolean."],
    "unknown_keys": ["Unrecognized config key 'my_key'. This key will be ignored.",
                     "Unrecognized config key 'model_training.backends'. This key will be ignored.",
                     "Unrecognized config key 'model_training.bakends'. This key will be ignored.",
                     "Unrecognized config key 'item_properties.colour'. This key will be ignored."],
    "other_warnings": ["validation.acknowledge entry 'xxxxxxxxxxxx' matches no warning."],
    "notes": ["a note"], "acknowledged": ["Unrecognized config key 'known'. This key will be ignored."],
}

CONFIG = """\
my_key: 1
known: 2
item_properties: {id_key: id, colour: red}
annotation_schemes:
  - {annotation_type: radio, name: s, description: d, labels: [a, yes]}
validation:
  acknowledge:
    - Unrecognized config key 'known'
    - Unrecognized config key 'gone'
"""


@pytest.fixture
def validate(tmp_path):
    """Runs `potato validate` in a directory with the config and a Potato that prints ``answer``; gives its JSON."""
    package = tmp_path / "site" / "potato"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "work").mkdir()

    def run(answer, *arguments, config=CONFIG, form="--json"):
        (package / "validate_cli.py").write_text(f"import sys; print({answer!r}); sys.exit(1)\n")
        (tmp_path / "work" / "config.yaml").write_text(config)
        return subprocess.run(
            [sys.executable, "-m", "potato_training.cli", "validate", form, *arguments], cwd=tmp_path / "work",
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, timeout=120)

    return run


def test_potatos_findings_stand_beside_ours_where_their_keys_are(validate):
    ran = validate(json.dumps(SAID))
    assert ran.returncode == 1, ran.stderr
    value = json.loads(ran.stdout)
    assert [(f["path"], f["line"], f["column"]) for f in value["errors"]] == [
        ("", 1, 1), ("annotation_schemes[0].labels[1]", 5, 67)]
    assert "read by YAML as a boolean" in value["errors"][1]["message"]
    assert [(f["path"], f["line"], f["column"]) for f in value["warnings"]] == [
        ("my_key", 1, 1), ("item_properties.colour", 3, 31), ("validation.acknowledge[1]", 9, 7)]
    assert [f["path"] for f in value["acknowledged"]] == ["known"]
    assert [f["message"] for f in value["notes"]] == [
        "Potato's own server does not know these keys: backends", "a note"]
    assert "plugins: [training-backends]" in value["notes"][0]["hint"]


def test_training_only_does_not_ask(validate):
    value = json.loads(validate(json.dumps(SAID), "--training-only").stdout)
    assert [f["path"] for f in value["errors"]] == ["annotation_schemes[0].labels[1]"]
    assert not value["warnings"]
    assert len(value["notes"]) == 2


@pytest.mark.parametrize("answer", ["", "[1]", "no JSON", "{"])
def test_a_potato_that_cannot_answer_is_a_note(validate, answer):
    value = json.loads(validate(answer).stdout)
    assert "could not be asked" in value["notes"][0]["message"]
    assert [f["path"] for f in value["errors"]] == ["annotation_schemes[0].labels[1]"]


def test_an_unreadable_config_is_not_shown_to_potato(validate):
    value = json.loads(validate(json.dumps(SAID), config="a: [").stdout)
    assert len(value["errors"]) == 1
    assert not value["notes"]


def test_a_directory_of_that_name_in_the_project_is_no_potato(validate, tmp_path):
    local = tmp_path / "work" / "potato"
    local.mkdir()
    (local / "validate_cli.py").write_text("raise SystemExit('run from the project')\n")
    ran = subprocess.run([sys.executable, "-m", "potato_training.cli", "validate", str(GOOD / "tutorial.yaml")],
                         cwd=tmp_path / "work", capture_output=True, text=True, timeout=120)
    assert ran.stdout == f"{GOOD / 'tutorial.yaml'}: ok\n"
