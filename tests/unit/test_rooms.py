"""The rooms: who may import whom, what stays light, and what travels."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("schema", "compiler", "templates", "runtime", "worker", "project", "server", "cli", "plugin")
#: room -> rooms it may import, besides itself. Of ``worker`` others take words only (below).
ALLOWED = {
    "schema": set(),
    "compiler": {"schema", "templates"},
    "templates": set(),
    "worker": set(),
    "project": {"schema", "worker"},
    "runtime": {"schema", "compiler", "project", "worker"},
    "server": {"schema", "compiler", "project", "runtime", "worker"},
    "cli": {"schema", "compiler", "project", "runtime", "server", "worker"},
    "plugin": {"schema", "compiler", "project", "runtime", "server", "worker"},
}
#: Protocol words, the layout of a job directory, the list of trainers, and what Slurm's answers mean: light, and
#: without hands.
WORKER_WORDS = {"protocol", "jobdir", "trainers", "slurm"}


def modules():
    return list(_modules())


def _modules():
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield pytest.param(room, path, id=str(path.relative_to(ROOT)))


def imports_of(path):
    """(room or top-level name, rest) of every import in a file, relative ones resolved."""
    package = ("potato_training", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = base + tuple((node.module or "").split(".") if node.module else ())
            for alias in node.names:
                yield (*stem, alias.name)


@pytest.mark.parametrize(("room", "path"), modules())
def test_imports_point_to_what_is_more_stable(room, path):
    for name in imports_of(path):
        assert name[0] != "potato", f"{path} imports the annotation server"
        if name[0] != "potato_training" or len(name) < 2 or name[1] not in ROOMS:
            continue
        other = name[1]
        assert other == room or other in ALLOWED[room], f"{path} imports {'.'.join(name)}"
        if other == "worker" and room != "worker":
            assert name[2:] and name[2] in WORKER_WORDS, f"{path} imports {'.'.join(name)}"


@pytest.mark.parametrize(("room", "path"), [p for p in modules() if p.values[0] == "worker"])
def test_what_travels_needs_the_standard_library_alone_to_import(room, path):
    """Trainers import their libraries inside functions; everything at the top is standard library."""
    for node in ast.parse(path.read_text("utf-8")).body:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [(node.module or "").split(".")[0]]
        for name in names:
            assert name in sys.stdlib_module_names, f"{path} imports {name} at its top"


@pytest.mark.parametrize("path", [p.values[1] for p in modules()], ids=lambda p: str(p.relative_to(ROOT)))
def test_no_shell_is_built_in_python(path):
    """Shell text lives in templates/: nothing hands a string to a shell."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "shell":
            assert isinstance(node.value, ast.Constant), path
            assert not node.value.value, path
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            assert node.attr not in ("system", "popen"), path
