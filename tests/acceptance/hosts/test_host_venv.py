"""The virtual environment that `packages` asks for."""

from __future__ import annotations

import shutil
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

CODE = "0123abcdef"


@pytest.fixture
def wheel(tmp_path):
    """A package of one module, as a wheel in a directory with a space."""
    path = tmp_path / "wheels of mine" / "tiny_thing-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_thing.py", "VALUE = 42\n")
        about = "tiny_thing-1.0.dist-info/"
        archive.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        archive.writestr(about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(about + "RECORD", "tiny_thing.py,,\n")
    return path


@pytest.mark.slow
def test_a_venv_is_made_once_and_shows_the_base_packages(ssh, host, over_ssh, wheel):
    from concurrent.futures import ThreadPoolExecutor

    files = ssh(packages=[str(wheel)], env={"PIP_NO_INDEX": "1"})
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: over_ssh(files["venv.sh"], hold=True, env=host.env), range(2)))
    assert [a.end for a in answers] == [0, 0], [(a.values, a.stderr) for a in answers]
    assert sum("pip" in a.values for a in answers) == 1
    python = Path(answers[0].values["python"][0])
    assert python.parent.parent.parent == host.root / "venvs"
    said = subprocess.run([python, "-c", "import tiny_thing, pytest; print(tiny_thing.VALUE)"], capture_output=True,
                          text=True, env={})
    assert said.stdout == "42\n", said.stderr        # pytest is a package of the base, itself a venv
    values = over_ssh(files["probe.sh"], CODE, "-", "tiny_thing", env=host.env).values
    assert values["venv"] == ["there"]
    assert values["module"] == ["tiny_thing there"]

    stamp = python.parent.parent / "COMPLETE"
    stamp.write_text("/another/python 3.7.1\n")      # the interpreter has changed: made anew
    marker = python.parent.parent / "marker"
    marker.touch()
    assert over_ssh(files["venv.sh"], hold=True, env=host.env).end == 0
    assert not marker.exists()
    before = time.time_ns()
    for compiled in python.parent.parent.rglob("__pycache__"):
        shutil.rmtree(compiled)
    assert over_ssh(files["venv.sh"], hold=True, env=host.env).end == 0
    assert stamp.stat().st_mtime_ns < before

    for lost in (next(python.parent.parent.rglob("tiny_thing.py")), python):  # as cleaners of scratch space do
        lost.unlink()
        for shell in ("dash", "bash"):
            assert over_ssh(files["probe.sh"], CODE, "-", "", shell=shell, env=host.env).values["venv"] == ["missing"]
        answer = over_ssh(files["venv.sh"], hold=True, env=host.env)
        assert answer.end == 0
        assert f"such as ./{lost.relative_to(python.parent.parent)}: made anew" in answer.values["pip"][0]
        assert lost.exists()
        assert over_ssh(files["probe.sh"], CODE, "-", "", env=host.env).values["venv"] == ["there"]


@pytest.mark.slow
def test_packages_that_cannot_be_installed(ssh, host, over_ssh):
    files = ssh(packages=["no-such-package-at-all==1"], env={"PIP_NO_INDEX": "1"})
    answer = over_ssh(files["venv.sh"], hold=True, env=host.env)
    assert answer.end == 1
    assert "could not be installed" in answer.values["error"][0]
    assert any("no-such-package-at-all" in line for line in answer.values["pip"])
    assert over_ssh(files["probe.sh"], CODE, "-", "", env=host.env).values["venv"] == ["missing"]


def test_one_venv_for_the_same_packages_in_any_order(compiled):
    def venv(**keys):
        return compiled("ssh", **keys).spec.place.venv

    assert venv(packages=["a", "b"]) == venv(packages=["b", "a"])
    assert venv(packages=["a", "b"]) != venv(packages=["a"])
    assert venv(packages=["a"]) != venv(packages=["a"], python="/other/python")
    assert venv(packages=[]) == ""
