"""Commands that only ask stay light: none of the heavy libraries is imported for them."""

from __future__ import annotations

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
