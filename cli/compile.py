"""``potato compile``: prints the exact scripts that a run would execute, or writes them."""

from __future__ import annotations

import argparse
import atexit
import gc
import re
import sys
from typing import TYPE_CHECKING

from .. import __version__
from ..schema.errors import UsageError
from .common import named, say_exactly, say_json

if TYPE_CHECKING:
    from ..compiler import CompiledRun, RunRequest
    from ..schema.config import Config

HELP = "print the exact scripts that a run would execute"

EPILOG = """\
examples:
  potato compile --backend cluster > job.sh         what sbatch would get
  potato compile --backend cluster | shellcheck -   it is clean
  potato compile --backend gpu-server --all         every script, each under a header line
  potato compile --backend cluster --output scripts
  potato compile --backend cluster --output by-hand --bundle   then: cd by-hand && sbatch job.sh
  potato compile --diff 20260131-120000-ab12cd      what has changed since that run

exit code: 0 well (--diff: no difference), 1 errors in the config (--diff: differences), 2 wrong usage
"""

EXAMPLE = "example"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add = parser.add_argument
    add("config", metavar="CONFIG", nargs="?", default="config.yaml", help="default: config.yaml")
    add("--backend", metavar="NAME", help="default: model_training.backend")
    add("--trainer", metavar="T", help="default: sklearn-text")
    add("--schemas", metavar="A,B", default="", help="default: those of writeback, else all trainable")
    add("--param", metavar="K=V", action="append", default=[], help="a parameter of the trainer")
    add("--run-id", metavar="ID", help=f"default: {EXAMPLE}")
    add("--all", action="store_true", help="every script, not only the one that matters most")
    add("--output", metavar="DIR", help="write all scripts to this directory")
    add("--bundle", action="store_true", help="make --output a directory that runs by hand")
    add("--diff", metavar="RUN", help="compare with the scripts that an earlier run executed")
    add("--json", action="store_true", help="the scripts and what they were made from, as JSON")


def run(args: argparse.Namespace) -> int:
    """Prints or writes; the exit code. Garbage is not collected meanwhile: there is none, and looking for it at
    each of the imports and once more at the end takes a sixth of this command's time."""
    atexit.register(gc.freeze)
    gc.disable()
    try:
        return _run(args)
    finally:
        gc.enable()


def _run(args: argparse.Namespace) -> int:
    if args.bundle and not args.output:
        raise UsageError("--bundle needs --output DIR", "DIR gets the scripts, the bundle and the worker's code")
    if args.diff and (args.output or args.run_id):
        raise UsageError("--diff compares and writes nothing", "leave out --output and --run-id")
    config = checked_config(args.config)
    if config is None:
        return 1
    if args.diff:
        from .compile_diff import show_differences

        return show_differences(config, args)
    request = request_of(config, args)
    compiled = compiled_run(config, request)
    if args.output:
        from .compile_output import write

        write(config, compiled, request, args)
    elif args.json:
        say_json(as_json(compiled))
    else:
        say_exactly(shown(compiled, everything=args.all))
    return 0


def checked_config(path: str) -> Config | None:
    """The config, its warnings on stderr. None when it has errors: then stderr has what `validate` prints."""
    from ..runtime.trainers import Nameable
    from ..schema.config import load
    from ..schema.report import line_of

    found = load(path, trainers=Nameable())
    if found.config is None:
        from ..schema.check import check
        from ..schema.report import as_text

        print(as_text(check(path, Nameable()), strict=False), file=sys.stderr)
        return None
    for finding in found.warnings:
        print(line_of(path, finding), file=sys.stderr)
    if not found.config.training["enabled"]:
        print(f"{path}: model_training.enabled is false: no run starts before it is true", file=sys.stderr)
    return found.config


def request_of(config: Config, args: argparse.Namespace) -> RunRequest:
    """The run that the arguments ask for, with the defaults of `potato training run`. UserError when there is none."""
    from ..compiler import RunRequest
    from ..runtime import request

    run_id = args.run_id or EXAMPLE
    if not _RUN_ID.match(run_id):
        raise UsageError(f"--run-id {run_id}: not a name for a run", "letters, digits, `_`, `.` and `-`, 64 at most")
    if not (args.trainer or args.schemas or args.param or args.output or args.json):
        # The scripts are the same whatever is trained: to print them nobody needs to ask the trainers.
        backend = request.known_backend(config, args.backend or config.training["backend"])
        return RunRequest(run_id, backend, request.DEFAULT_TRAINER, ())
    info = request.chosen_trainer(args.trainer)
    backend = request.chosen_backend(config, info, args.backend)
    schemas = request.chosen_schemas(config, info, named(args.schemas))
    return RunRequest(run_id, backend, info.name, schemas, request.written_params(info, args.param))


def compiled_run(config: Config, request: RunRequest) -> CompiledRun:
    from ..compiler import compile_run

    return compile_run(config, request, version=__version__)


def shown(compiled: CompiledRun, *, everything: bool) -> str:
    """The script that matters, or every script under a header line."""
    if compiled.main is None:
        return compiled.note
    if not everything:
        return compiled.files[compiled.main]
    return "\n".join(f"==> {name} <==\n{text}" for name, text in compiled.files.items())


def as_json(compiled: CompiledRun) -> dict[str, object]:
    spec = compiled.spec
    return {
        "run_id": spec.run_id, "backend": spec.place.name, "type": spec.place.type, "trainer": spec.trainer,
        "schemas": list(spec.schemas), "params": dict(spec.params), "version": spec.version,
        "config_sha256": spec.config_sha256, "main": compiled.main, "files": dict(compiled.files),
        "note": compiled.note,
    }
