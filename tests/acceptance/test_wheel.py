"""The wheel: every room and data file is in it, it type-checks, and it runs where nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = (
    "potato_training", "schema", "compiler", "templates", "runtime", "worker", "project", "server", "cli", "plugin",
)
#: What is part of the product; everything else in a room's folder is by accident.
KINDS = (".py", ".json", ".j2", ".css", ".js", ".html", ".svg", ".typed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of a copy of the tree: building in the tree itself would leave build/ behind."""
    import shutil

    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*ROOMS, "pyproject.toml", "README.md", "LICENSE"):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.exists():
            shutil.copy(path, source / name)
    ran = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out), str(source)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )
    assert ran.returncode == 0, ran.stderr
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_holds_what_the_rooms_hold(wheel):
    expected = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            if path.suffix in KINDS and "__pycache__" not in path.parts:
                inside = path.relative_to(ROOT)
                expected.add(str(inside) if room == "potato_training" else f"potato_training/{inside}")
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("potato_training/")}
    assert found == expected


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.mark.slow
def test_the_wheel_type_checks(unpacked):
    pytest.importorskip("mypy")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", os.devnull,
         "--ignore-missing-imports", "-p", "potato_training"],
        cwd=unpacked, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["schema"], ["validate", "config.yaml"], ["compile", "--all", "--backend", "local"]],
    ids=" ".join,
)
def test_the_wheel_runs_without_the_sources(unpacked, arguments, project):
    """-I keeps the current folder and PYTHONPATH out; the unpacked wheel is put before the editable install."""
    code = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r}); sys.meta_path[:] = "
        "[f for f in sys.meta_path if 'editable' not in getattr(f, '__module__', '') + repr(f)]\n"
        "from potato_training.cli.main import main\n"
        f"import potato_training; assert potato_training.__file__.startswith({str(unpacked)!r})\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code, *arguments], cwd=project("review-project"), stdin=subprocess.DEVNULL,
        capture_output=True, text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
