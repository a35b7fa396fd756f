"""``potato compile --output DIR``: the scripts as files, and with ``--bundle`` all that a run by hand needs."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..schema.errors import UserError

if TYPE_CHECKING:
    from ..compiler import CompiledRun, JobSpec, RunRequest
    from ..schema.config import Config

#: What was written to a directory, name -> SHA-256, so that only that is ever written again.
WRITTEN = ".potato-compile.json"

BY_HAND = """\
This directory runs by hand what `potato training run` would run on backend {backend}: it holds the job script,
the worker's spec, the bundle of items and labels, and the worker's code.

{how}

Progress comes into events.jsonl, errors into stderr.log; the model is in artifacts/, the predictions in
predictions.jsonl. {again}
"""
_SBATCH = """\
    cd {folder}
    sbatch job.sh

To move it to the cluster first: rsync -a {folder}/ login:some/shared/place/"""
_PLAIN = """\
    cd {folder}
    PYTHONPATH=code python3 -m potato_training.worker --spec spec.json >> events.jsonl 2>> stderr.log"""


def write(config: Config, compiled: CompiledRun, request: RunRequest, args: argparse.Namespace) -> None:
    """Writes and says what was written. UserError before anything is touched that is somebody else's."""
    target = Path(args.output)
    files = dict(compiled.files)
    if args.bundle:
        files.update(_by_hand(config, compiled.spec, request, target))
    if not files:
        print(compiled.note, end="")
        return
    target.mkdir(mode=0o700 if args.bundle else 0o777, parents=True, exist_ok=True)
    _refuse_foreign(target, files)
    if args.bundle:
        _refuse_folders(target)
        _write_bundle(config, request, target)
        _write_code(target)
    for name, text in files.items():
        _write_file(target / name, text)
    digests = {**_written(target), **{name: _digest(text.encode()) for name, text in files.items()}}
    _write_file(target / WRITTEN, json.dumps(digests, indent=1) + "\n")
    for name in files:
        print(target / name)


def _by_hand(config: Config, spec: JobSpec, request: RunRequest, target: Path) -> dict[str, str]:
    from ..runtime.jobs import worker_spec

    # "finish": nobody looks after this worker, so it is no orphan that must stop
    values = worker_spec(request, config, "finish")
    slurm = spec.place.type == "slurm"
    how = (_SBATCH if slurm else _PLAIN).format(folder=target)
    again = "To run it again, remove claim/ and what it wrote." if slurm else ""
    return {
        "spec.json": json.dumps(values, indent=1, ensure_ascii=False) + "\n",
        "README.txt": BY_HAND.format(backend=spec.place.name, how=how, again=again),
    }


def _write_bundle(config: Config, request: RunRequest, target: Path) -> None:
    from ..project.bundle import build_bundle
    from ..worker.protocol import BUNDLE_ARCHIVE, BUNDLE_DIR

    archive = target / BUNDLE_ARCHIVE
    built = build_bundle(config, request.schemas, archive)
    for warning in built.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    fresh = target / f"{BUNDLE_DIR}.tmp"
    shutil.rmtree(fresh, ignore_errors=True)
    with tarfile.open(archive) as tar:  # our own, made a moment ago
        if hasattr(tarfile, "data_filter"):
            tar.extractall(fresh, filter="data")
        else:  # Python 3.10 before 3.10.12
            tar.extractall(fresh)  # noqa: S202
    archive.unlink()
    _replace_folder(fresh, target / BUNDLE_DIR)


def _write_code(target: Path) -> None:
    """The worker's code, as it would travel: the package's version, and the worker room."""
    from ..worker import protocol

    room = Path(protocol.__file__).parent
    fresh = target / "code.tmp"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(room, fresh / "potato_training" / "worker", ignore=shutil.ignore_patterns("__pycache__", "*.tmp"))
    (fresh / "potato_training" / "__init__.py").write_text(f'__version__ = "{__version__}"\n', encoding="utf-8")
    _replace_folder(fresh, target / "code")


def _replace_folder(fresh: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    fresh.rename(place)


def _refuse_folders(target: Path) -> None:
    """``bundle`` and ``code`` are replaced whole: they must be ours, from an earlier call."""
    for name in ("bundle", "code"):
        if (target / name).exists() and "spec.json" not in _written(target):
            raise UserError(f"{target / name} is there already, and potato compile did not write it",
                            "name another directory for --output")


def _refuse_foreign(target: Path, files: dict[str, str]) -> None:
    known = _written(target)
    for name, text in files.items():
        path = target / name
        if not os.path.lexists(path):
            continue
        found = _digest(path.read_bytes()) if path.is_file() and not path.is_symlink() else ""
        if found != _digest(text.encode()) and found != known.get(name):
            why = "has been changed since" if name in known else "is there already, and potato compile did not write it"
            raise UserError(f"{path} {why}", "name another directory for --output, or move the file away")


def _written(target: Path) -> dict[str, str]:
    try:
        found = json.loads((target / WRITTEN).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_file(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(path)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
