"""``potato compile --diff RUN``: what a run would execute now, against what an earlier one executed."""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import TYPE_CHECKING

from ..schema.errors import UserError

if TYPE_CHECKING:
    from ..schema.config import Config


def show_differences(config: Config, args: argparse.Namespace) -> int:
    """Prints a unified diff of every script; 1 when there is one. The earlier run's own request is compiled."""
    from ..compiler import RunRequest
    from ..runtime.lookup import find, open_store
    from ..runtime.places import Places
    from ..runtime.request import known_backend
    from .compile import compiled_run

    run = find(open_store(config.task_dir), args.diff)
    backend = known_backend(config, args.backend or run.backend)
    request = RunRequest(run.run_id, backend, run.trainer, run.schemas, run.params, run.attempt)
    compiled = compiled_run(config, request)
    folder = Places(config.task_dir).run_dir(run.run_id)
    names = [name for name in compiled.files if (folder / name).exists()]
    if not names:
        raise UserError(f"run {run.run_id} executed no scripts that could be compared ({run.backend})",
                        "local and agent backends need none; the directory of a pruned run is gone")
    differ = False
    for name in names:
        old, new = (folder / name).read_text("utf-8"), compiled.files[name]
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), f"{run.run_id}/{name}", f"now/{name}")
        for line in lines:
            differ = True
            sys.stdout.write(line)
    if not differ:
        print(f"no difference from run {run.run_id}: {', '.join(names)}", file=sys.stderr)
    return int(differ)
