"""Commands that only ask stay light: none of the heavy libraries is imported for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "flask", "pandas", "sklearn", "numpy", "cheroot", "rich")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"], ["--version"], ["training", "--help"], ["validate", "config.yaml"], ["validate", "--help"],
        ["compile", "--backend", "local"], ["training", "runs"], ["training", "runs", "--help"],
    ],
    ids=" ".join,
)
def test_no_heavy_library_is_imported(arguments, project):
    code = (
        "import sys\n"
        "from potato_training.cli.main import main\n"
        "try: code = main(sys.argv[1:])\n"
        "except SystemExit as end: code = end.code\n"
        f"print('HEAVY', [n for n in {HEAVY!r} if n in sys.modules], code)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=project("review-project"), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=True,
    )
    assert ran.stdout.splitlines()[-1] in ("HEAVY [] 0", "HEAVY [] None"), ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["potato", "potato-training"])
def test_help_and_hints_name_the_command_that_was_called(name, project, tmp_path):
    beside = tmp_path / "site"
    (beside / "potato_annotation-9.8.7.dist-info").mkdir(parents=True)

    def call(*arguments):
        code = (
            f"import sys; sys.argv[0] = '/some/bin/{name}'; sys.path.insert(0, {str(beside)!r})\n"
            "from potato_training.cli.main import entry\n"
            "entry()\n"
        )
        return subprocess.run([sys.executable, "-c", code, *arguments], cwd=project_dir, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)

    project_dir = project("review-project")
    assert f"usage: {name} COMMAND" in call("--help").stdout
    assert f"{name} training run config.yaml" in call("--help").stdout
    curve = call("training", "curve", "--help").stdout
    assert f"usage: {name} training curve" in curve and f"\n  {name} training curve config.yaml" in curve
    said = call("training", "nonsense").stderr.splitlines()
    assert said == [f"{name}: there is no command 'training nonsense'", " " * (len(name) + 2) +
                    f"{name} training --help lists them"]
    assert call("training", "runs").stdout == f"no runs in this project yet; {name} training run starts one\n"
    assert call("--version").stdout.splitlines()[1:] == ["potato-annotation 9.8.7"]


@pytest.mark.parametrize("arguments", [
    ["schema"], ["completion", "bash"], ["compile", "--backend", "local"], ["validate"], ["training", "runs"],
    ["nonsense"],
], ids=" ".join)
def test_without_any_stream_a_command_does_its_work(arguments, project):
    ran = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -m potato_training.cli "$@" <&- >&- 2>&-', sys.executable, *arguments],
        cwd=project("review-project"), capture_output=True, text=True,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (2 if arguments == ["nonsense"] else 0, "", "")


def test_what_another_program_reads_is_utf8_on_any_terminal(project):
    root = project("review-project")
    config = root / "config.yaml"
    config.write_text(config.read_text().replace("sentiment", "grün") + """
  backends:
    cluster: {type: slurm, host: h, remote_dir: /s, gres: "gpu:1", env: {WORD: "é日"}}
""")

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "potato_training.cli", *arguments], cwd=root, stdin=subprocess.DEVNULL,
            capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"},
        ).stdout.decode()

    assert "export WORD='é日'" in call("compile", "--backend", "cluster")
    assert json.loads(call("compile", "--backend", "cluster", "--json"))["schemas"] == ["grün"]
