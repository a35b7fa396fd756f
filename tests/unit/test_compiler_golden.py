"""Whole scripts, compared byte for byte with what somebody has read and found right.

    GOLDEN=write python -m pytest tests/unit/test_compiler_golden.py

writes them anew; then read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from potato_training.compiler import RunRequest, compile_run
from potato_training.compiler.scripts import SCRIPTS
from potato_training.schema.check import config_schema
from potato_training.schema.config import load_or_raise

GOLDEN = Path(__file__).parents[1] / "golden" / "compiler"
CASES = sorted(p.stem for p in GOLDEN.glob("*.yaml"))
WRITE = os.environ.get("GOLDEN") == "write"


def compiled(case, backend):
    config = load_or_raise(GOLDEN / f"{case}.yaml")
    return compile_run(config, RunRequest("example", backend, "sklearn-text", ("sentiment",)), version="1.2.3")


def backends(case):
    return load_or_raise(GOLDEN / f"{case}.yaml").backends


PAIRS = [(case, backend) for case in CASES for backend in backends(case)]


@pytest.mark.parametrize(("case", "backend"), PAIRS)
def test_the_scripts_are_those_that_were_read(case, backend):
    run = compiled(case, backend)
    folder = GOLDEN / case / backend
    files = dict(run.files) or {"note.txt": run.note}
    if WRITE:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    assert sorted(p.name for p in folder.iterdir()) == sorted(files)
    for name, text in files.items():
        assert (folder / name).read_bytes() == text.encode("utf-8"), f"{case}/{backend}/{name} reads otherwise now"


def test_no_golden_script_is_left_over():
    assert sorted((p.parent.name, p.name) for p in GOLDEN.glob("*/*")) == sorted(PAIRS)


@pytest.mark.parametrize(("case", "backend"), PAIRS)
def test_the_same_input_gives_the_same_bytes(case, backend):
    assert dict(compiled(case, backend).files) == dict(compiled(case, backend).files)


@pytest.mark.parametrize(("case", "backend"), PAIRS)
def test_scripts_are_what_a_machine_takes(case, backend):
    for name, text in compiled(case, backend).files.items():
        assert text.startswith("#!/bin/bash -l\n" if name == "job.sh" else "#!/bin/sh\n"), name
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        assert "\n\n\n" not in text, name
        assert "\r" not in text
        assert "{{" not in text
        assert "{%" not in text
        assert not any(line != line.rstrip() for line in text.splitlines()), name


@pytest.mark.parametrize(("case", "backend"), PAIRS)
def test_the_head_says_where_a_script_comes_from(case, backend):
    run = compiled(case, backend)
    for text in run.files.values():
        assert text.splitlines()[1:3] == [
            f"# potato-training 1.2.3: run example on backend {backend}", f"# config sha256 {run.spec.config_sha256}",
        ]


@pytest.mark.parametrize(("case", "backend"), PAIRS)
def test_sbatch_lines_come_before_the_first_command(case, backend):
    text = compiled(case, backend).files.get("job.sh", "")
    lines = text.splitlines()
    flags = [n for n, line in enumerate(lines) if line.startswith("#SBATCH")]
    commands = [n for n, line in enumerate(lines) if line and not line.startswith("#")]
    assert not text or max(flags) < min(commands)


@pytest.mark.parametrize("kind", ["ssh", "slurm", "agent"])
def test_the_cases_touch_every_key(kind):
    keys = set(config_schema()["$defs"][kind]["properties"]) - {"type"}
    set_ = set()
    for case in CASES:
        for backend in backends(case).values():
            raw = load_or_raise(GOLDEN / f"{case}.yaml").raw["model_training"]["backends"].get(backend.name, {})
            if backend.type == kind:
                set_ |= set(raw)
    assert keys <= set_


@pytest.mark.parametrize(("case", "backend"), [pair for pair in PAIRS if compiled(*pair).files])
def test_shellcheck_is_silent(case, backend, shellcheck):
    """But for the prelude: that is the user's own."""
    texts = compiled(case, backend).files.values()
    if case != "hostile":
        assert shellcheck(*texts) == ""
    else:
        assert shellcheck(*(t for t in texts if "START of" not in t)) == ""


@pytest.mark.parametrize(("case", "backend"), PAIRS)
def test_the_part_for_bash_within_launch_sh_is_checked_too(case, backend, shellcheck):
    run = compiled(case, backend)
    if run.spec.place.type == "ssh" and run.spec.place.prelude and case != "hostile":
        text = run.files["launch.sh"]
        end = run.spec.place.here_end
        inner = text.split(f"<< '{end}'", 1)[1].split("\n", 1)[1].split(f"\n{end}\n", 1)[0] + "\n"
        assert inner.startswith("#!/bin/bash -l\n")
        assert shellcheck(inner) == ""


def test_the_documentation_shows_the_whole_script():
    """docs/scripts.md explains the tutorial's job.sh piece by piece: the pieces are that script, and nothing else."""
    text = (GOLDEN.parents[2] / "docs" / "scripts.md").read_text("utf-8").split("## By hand")[0]
    pieces = [part.split("```")[0].strip() for part in text.split("```bash\n")[1:]]
    assert "\n".join(pieces).split() == (GOLDEN / "tutorial" / "cluster" / "job.sh").read_text("utf-8").split()


def test_the_documentation_names_every_script_and_answer():
    text = (GOLDEN.parents[2] / "docs" / "scripts.md").read_text("utf-8")
    templates = GOLDEN.parents[2] / "templates"
    said = {word for path in templates.rglob("*.j2") for word in re.findall(r"potato_say (\w+)", path.read_text())}
    said |= {word for path in templates.rglob("*.j2") for word in re.findall(r"potato_lines (\w+)", path.read_text())}
    missing = [word for word in sorted(said - {"error"}) if f"`{word}`" not in text]
    assert missing == []
    assert [name for scripts in SCRIPTS.values() for name in scripts if f"`{name}`" not in text] == []
