"""`potato validate` and `potato schema`, as commands."""

import io
import json
import os
from pathlib import Path

import jsonschema
import pytest
from potato_training.cli.main import COMMANDS, main

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"
GOOD, BAD, WARNED = "good/tutorial.yaml", "bad/training-retain-runs-many.yaml", "bad/slurm-time-twelve-hours.yaml"


@pytest.fixture(autouse=True)
def in_the_fixtures(monkeypatch):
    monkeypatch.chdir(CONFIGS)


@pytest.mark.parametrize(("arguments", "code"), [
    ([GOOD], 0), ([GOOD, "--strict"], 0), ([BAD], 1), ([WARNED], 0), ([WARNED, "--strict"], 1), ([GOOD, BAD], 1),
    ([GOOD, WARNED, "--strict"], 1), (["none.yaml"], 1), (["good/acknowledged.yaml", "--strict"], 0),
    ([GOOD, "--training-only"], 0), ([], 1),
])
@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_exit_codes(arguments, code, form, capsys):
    assert main(["validate", *arguments, "--format", form]) == code
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("arguments", [["--format", "xml"], ["--unknown"]])
def test_wrong_usage_is_two(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["validate", *arguments])
    assert caught.value.code == 2
    assert "usage: potato validate" in capsys.readouterr().err


def test_the_config_of_the_directory_is_the_default(tmp_path, monkeypatch, capsys):
    (tmp_path / "config.yaml").write_text("port: 1\n")
    monkeypatch.chdir(tmp_path)
    assert main(["validate"]) == 0
    assert capsys.readouterr().out == "config.yaml: ok\n"


def json_of(capsys, *arguments):
    main(["validate", *arguments, "--json"])
    value = json.loads(capsys.readouterr().out)
    main(["schema", "--of", "report"])
    jsonschema.validate(value, json.loads(capsys.readouterr().out))
    return value


def test_json_has_its_own_schema_and_all_findings(capsys):
    value = json_of(capsys, "bad/training-several-at-once.yaml")
    assert value["config_file"] == "bad/training-several-at-once.yaml"
    assert (value["ok"], value["strict"]) == (False, False)
    assert len(value["errors"]) == 8
    assert value["errors"][2] == {
        "path": "model_training.retain_runs", "line": 11, "column": 16,
        "message": "retain_runs is many, where a whole number is expected", "hint": ""}
    assert [f["path"] for f in value["notes"]] == ["model_training.backends.cluster"]


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*/*.yaml")), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_ok_in_json_is_exit_code_zero(config, capsys):
    for strict in ([], ["--strict"]):
        code = main(["validate", str(config), "--json", *strict])
        value = json.loads(capsys.readouterr().out)
        assert value["ok"] == (code == 0)
        assert value["strict"] == bool(strict)


def test_json_of_several_configs_is_a_list(capsys):
    value = json_of(capsys, GOOD, BAD)
    assert [(v["config_file"], v["ok"]) for v in value] == [(GOOD, True), (BAD, False)]


def test_acknowledged_warnings_are_listed_apart(capsys):
    value = json_of(capsys, "good/acknowledged.yaml", "--strict")
    assert value["ok"]
    assert not value["warnings"]
    assert len(value["acknowledged"]) == 4
    main(["validate", "good/acknowledged.yaml"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("acknowledged: good/acknowledged.yaml:") for line in lines) == 4
    assert lines[-1] == "good/acknowledged.yaml: ok (1 note, 4 acknowledged)"


def test_github_gets_a_workflow_command_for_each_finding(capsys):
    main(["validate", BAD, "--format", "github"])
    assert capsys.readouterr().out.splitlines() == [
        f"::error file={BAD},line=9,col=16,title=potato validate::model_training.retain_runs: retain_runs is many, "
        "where a whole number is expected",
        f"{BAD}: failed (1 error)",
    ]


def test_github_commands_cannot_be_broken_out_of(tmp_path, monkeypatch, capsys):
    (tmp_path / "a,b:c%.yaml").write_text('model_training: {"x%0A::warning::y\\n": 1}\n')
    monkeypatch.chdir(tmp_path)
    main(["validate", "a,b:c%.yaml", "--format", "github"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("::error file=a%2Cb%3Ac%25.yaml,line=1,col=18,title=potato validate::")
    assert "%250A" in lines[0]


def test_text_from_the_config_cannot_drive_a_terminal(tmp_path, monkeypatch, capsys):
    (tmp_path / "c.yaml").write_text('model_training: {"\\e[2J\\u202e": 1, retain_runs: "\\e]0;x\\a"}\n')
    monkeypatch.chdir(tmp_path)
    assert main(["validate", "c.yaml"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_a_terminal_that_cannot_show_a_character_gets_an_escape(tmp_path, potato):
    (tmp_path / "é.yaml").write_text("model_training: {backend: caf\u00e9}\n", "utf-8")
    ran = potato("validate", "é.yaml", cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert ran.returncode == 1
    assert "backend is 'caf\\xe9'" in ran.stdout
    assert ran.stderr == ""


def test_schema_prints_the_schema_that_is_in_the_repository(capsys):
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert printed == (CONFIGS.parents[2] / "schema" / "config.schema.json").read_text("utf-8")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"training agent"}))  # that one becomes another program
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), "--help"])
    assert caught.value.code == 0
    usage, _, more = capsys.readouterr().out.partition("\n\n")
    assert usage.startswith(f"usage: potato {command}")
    assert f"potato {command} " in " ".join(more.split())


def test_help_of_the_training_commands_is_about_them(capsys):
    assert main(["training", "--help"]) == 0
    said = capsys.readouterr().out
    assert "potato training run config.yaml" in said
    assert "--version" not in said and "annotation server is installed" not in said and "validate" not in said


@pytest.mark.parametrize(("data", "code", "said"), [
    (b"model_training: {enabled: true}\n", 0, "-: ok\n"),
    (b"model_training: {enabled: true}\nmodel_training: {}\n", 1, "-:2:1: error: model_training: duplicate key"),
    (b"", 1, "-:1:1: error: the file is empty\n"), (b"x" * (8 * 2**20 + 1), 1, "-:1:1: error: the file is over 8 MB"),
])
def test_a_config_may_come_on_stdin(data, code, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["validate", "--strict", "-"]) == code
    assert capsys.readouterr().out.startswith(said)


def test_a_closed_stdin_is_an_empty_file(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["validate", "-"]) == 1
    assert capsys.readouterr().out.startswith("-:1:1: error: the file is empty\n")


def test_utf16_is_called_so_with_and_without_its_mark(tmp_path, capsys):
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        (tmp_path / "config.yaml").write_bytes("model_training: {enabled: true}\n".encode(encoding))
        assert main(["validate", str(tmp_path / "config.yaml")]) == 1
        said = capsys.readouterr().out
        assert "looks like UTF-16; save the file as UTF-8" in said and ":1:" in said
