"""Both packages bring a command `potato`: whichever was installed last, each can be called."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile

import pytest
import yaml

pytestmark = [pytest.mark.real, pytest.mark.slow]

POTATO = "potato-annotation>=2.12,<2.13"


@pytest.fixture(scope="module")
def wheel(site, tmp_path_factory):
    """The tree as a wheel, without a build: what is in it is another test's."""
    path = tmp_path_factory.mktemp("wheel") / "potato_training-0.0.0-py3-none-any.whl"
    about = "potato_training-0.0.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for top in (site / "potato_training", *(site / "potato_training").iterdir()):
            for file in (top.rglob("*") if top.is_dir() and top.name != "potato_training" else [top]):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(site))
        for name in ("METADATA", "entry_points.txt"):
            archive.write(site / about / name, f"{about}/{name}")
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{about}/WHEEL", tags)
        names = [*archive.namelist(), f"{about}/RECORD"]
        archive.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in names))
    return path


@pytest.fixture(scope="module")
def environment(potato_python, beside, tmp_path_factory):
    """A fresh virtual environment that borrows the libraries of both, but neither program."""
    home = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=120)
    (packages,) = home.glob("lib/python3*/site-packages")
    (theirs,) = potato_python.parents[1].glob("lib/python3*/site-packages")
    (packages / "borrowed.pth").write_text(f"{theirs}\n{beside}\n")
    return home / "bin"


@pytest.mark.thorough("installs both packages in both orders")
def test_whichever_was_installed_last_has_the_command_and_both_can_be_called(study, environment, wheel):
    def install(*what):
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--python", environment / "python", "install", "-q", "--no-deps",
             "--force-reinstall", "--no-compile", "--disable-pip-version-check", *what],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"NO POTATO: {what} could not be installed: {done.stderr.strip()[-500:]}")

    def call(command, *arguments):
        done = subprocess.run([environment / command, *arguments], cwd=study.root, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    config = yaml.safe_load(study.config.read_text())
    config |= {"plugins": ["training-backends"], "my_own_key": 1}
    study.config.write_text(yaml.safe_dump(config))

    install(POTATO)
    install(wheel)
    code, said = call("potato", "--version")
    assert (code, said.startswith("potato-training ")) == (0, True), said
    code, said = call("potato", "validate", "--strict", "config.yaml")
    assert (code, "my_own_key" in said) == (1, True), "ours, with Potato's findings"
    code, said = call("potato", "plugins", "training-backends")
    assert (code, "potato-training" in said) == (0, True), said
    code, said = call("potato", "start", "--nonsense", "a b", "")
    assert (code, "usage: potato" in said, "--nonsense" in said) == (2, True, True), "Potato's own parser got it"
    assert "annotation server's own command" not in call("potato-training", "--help")[1]

    install(POTATO)  # now Potato is the last
    code, said = call("potato", "--version")
    assert said.startswith("potato 2."), said
    both = call("potato-training", "--version")[1].splitlines()
    assert [line.split()[0] for line in both] == ["potato-training", "potato-annotation"]
    named = re.search(r"Any other command \((.*), \.\.\.\)", call("potato-training", "--help")[1])[1].split(", ")
    theirs = call("potato", "--help")[1]
    assert "start" in named and all(re.search(rf"\b{name}\b", theirs) for name in named)
    code, said = call("potato", "validate", "config.yaml")
    assert "my_own_key" in said
    code, said = call("potato-training", "--version")
    assert (code, said.startswith("potato-training ")) == (0, True)
    assert call("potato-training", "validate", "config.yaml", "--training-only")[0] == 0
    code, said = call("potato-training", "--help")
    assert "`potato` is the annotation server's own command: call these as potato-training" in said
    code, said = call("potato-training", "plugins", "training-backends")
    assert (code, "potato-training" in said) == (0, True), "the other way round as well"
