"""docs/tutorial.md: its console blocks are executed in a copy of the example project, in their order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"


def steps():
    """(command, the lines shown below it), in order."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", TUTORIAL.read_text("utf-8"), re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


@pytest.mark.slow
def test_what_the_tutorial_shows_is_what_happens(tmp_path):
    if not find_spec("sklearn"):
        pytest.skip("needs scikit-learn")
    study = tmp_path / "reviews"
    shutil.copytree(ROOT / "examples" / "reviews", study, ignore=shutil.ignore_patterns("training"))
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    for command, shown in steps():
        ran = subprocess.run(["bash", "-c", command], cwd=study, env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        failing = any("error:" in line for line in shown)
        assert ran.returncode == (1 if failing else 0), f"{command}\n{ran.stdout}"
        for line in shown:
            pattern = r"\s+".join(re.escape(word).replace(r"\.\.\.", ".*") for word in line.split())
            assert re.search(pattern, ran.stdout), f"{command} does not print {line!r}:\n{ran.stdout}"
