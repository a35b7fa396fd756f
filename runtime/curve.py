"""The learning curve: the trainer trained on a quarter, a half, three quarters and all of the labels.

Everything happens on this machine, beside the runs and not among them: nothing is published and no run is
recorded. The parts are nested: which item is in which is a seeded hash of its id, but for one item of each label,
which is in all of them. The held-out items are the same for all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler import RunRequest
from ..schema.errors import UserError
from ..worker.jobdir import make_private_dir, write_private
from ..worker.protocol import (
    BUNDLE_DIR,
    CONTROL_FILE,
    CONTROL_RUN,
    EVENTS_FILE,
    PREDICTIONS_FILE,
    SPEC_FILE,
    STDERR_FILE,
)
from . import curve_folder, curve_stats
from .jobs import worker_spec
from .places import Places

if TYPE_CHECKING:
    from ..schema.config import Config

SHARES = (0.25, 0.5, 0.75, 1.0)
#: Test items alone are held out when there are so many of them; else val items are counted with them.
ENOUGH_TEST = 50
FEWEST = 5
#: Of one item nothing can be learned, nor of one label.
FEWEST_TRAIN = 2
FILE = "curve.json"
Say = Callable[[str], None]


def make(config: Config, trainer: str, schemas: Sequence[str], params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Trains the curve and keeps it in training/curve.json; the curve. UserError when a training fails."""
    from ..project.bundle import build_bundle

    where = Places(config.task_dir)
    where.prepare()
    request = RunRequest("curve", "local", trainer, tuple(schemas), params)
    with curve_folder.folder(where.root) as (root, lock):
        say("reading the annotations")
        built = build_bundle(config, schemas, root / "bundle.tar.gz")
        for warning in built.warnings:
            say(f"warning: {warning}")
        whole = root / "whole"
        _unpack(root / "bundle.tar.gz", whole)
        held_out = {name: _held_out(whole, name) for name in schemas}
        found: dict[str, list[Any]] = {name: [] for name in schemas}
        for share in SHARES:
            job = root / f"{share:g}"
            counts = _part(whole, job, share, config.training["split_seed"], schemas)
            say(f"training on {share:.0%} of the labels ({', '.join(map(str, dict.fromkeys(counts.values())))} items)")
            spec = {**worker_spec(request, config, "stop"), "include_unlabeled": False}
            metrics = _train(job, spec, lock)
            for name in schemas:
                right = _right(job, name, held_out[name])
                split = "test" if all(split == "test" for split, _ in held_out[name].values()) else None
                f1 = metrics.get(name, {}).get(split, {}).get("macro_f1") if split else None
                found[name].append((share, counts[name], right, f1))
    curve = {
        "v": 1, "trainer": trainer, "params": dict(params), "made": time.time(), "config_sha256": config.sha256,
        "schemas": {name: curve_stats.summary(points) for name, points in found.items()},
    }
    path = where.root / FILE
    write_private(str(path), json.dumps({**read(where), trainer: curve}, indent=1, ensure_ascii=False) + "\n")
    return curve


def read(where: Places) -> dict[str, Any]:
    """{trainer: its last curve}; empty when there is none, or none that can be read."""
    try:
        curves = json.loads((where.root / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return curves if isinstance(curves, dict) else {}


def place(item: str, seed: int) -> float:
    """Where an item stands between 0 and 1: it is in every part of a larger share. Not what the splits go by."""
    digest = hashlib.sha256(f"curve {seed} {item}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64


def _unpack(archive: Path, target: Path) -> None:
    target.mkdir()
    with tarfile.open(archive) as tar:  # our own, made a moment ago
        for name in ("manifest.json", "train.jsonl", "val.jsonl", "test.jsonl"):
            source = tar.extractfile(name)
            assert source is not None
            with source, (target / name).open("wb") as out:
                shutil.copyfileobj(source, out)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as f:
        yield from map(json.loads, f)


def _held_out(whole: Path, schema: str) -> dict[str, tuple[str, Any]]:
    """{item: (split, what people said)} of the items that all parts are measured on."""
    found = {
        split: {row["id"]: (split, row["labels"][schema]) for row in _rows(whole / f"{split}.jsonl")
                if row.get("labels", {}).get(schema)}
        for split in ("test", "val")
    }
    chosen = found["test"] if len(found["test"]) >= ENOUGH_TEST else {**found["val"], **found["test"]}
    if len(chosen) < FEWEST:
        raise UserError(
            f"{schema}: {len(chosen)} held-out items have a label; at least {FEWEST} are needed for a curve",
            "annotate more items; the splits of model_training say how many are held out",
        )
    return chosen


def _part(whole: Path, job: Path, share: float, seed: int, schemas: Sequence[str]) -> dict[str, int]:
    """Makes a job directory whose bundle has the share of the train items of lowest place; items by schema."""
    bundle = job / BUNDLE_DIR
    bundle.mkdir(parents=True)
    rows = sorted(_rows(whole / "train.jsonl"), key=lambda row: place(row["id"], seed))
    kept: dict[str, dict[str, Any]] = {}
    counts = {}
    for name in schemas:  # a share of each scheme's labels, not of the items that have some label
        labelled = _labels_first([row for row in rows if row.get("labels", {}).get(name)], name)
        some = labelled[: max(FEWEST_TRAIN, round(share * len(labelled)))]
        counts[name] = len(some)
        for row in some:
            kept.setdefault(row["id"], {**row, "labels": {}})["labels"][name] = row["labels"][name]
    with (bundle / "train.jsonl").open("w", encoding="utf-8") as out:
        for row in _rows(whole / "train.jsonl"):
            if row["id"] in kept:
                out.write(json.dumps(kept[row["id"]], ensure_ascii=True) + "\n")
    manifest = json.loads((whole / "manifest.json").read_text("utf-8"))
    manifest["splits"].pop("unlabeled", None)
    manifest["splits"]["train"]["n"] = len(kept)
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    for name in ("val.jsonl", "test.jsonl"):
        os.link(whole / name, bundle / name)
    return counts


def _labels_first(rows: list[dict[str, Any]], schema: str) -> list[dict[str, Any]]:
    """The rows with one of each label in front, so that a small part is not of one label only.

    They are no more than half of the smallest part: with very many labels it would be nothing like the rest.
    """
    most = max(FEWEST_TRAIN, round(SHARES[0] * len(rows)) // 2)
    met: set[str] = set()
    front: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    for row in rows:
        given = row["labels"][schema]
        labels = set(given) if isinstance(given, list) else {given}
        if len(front) < most and not labels <= met:
            met |= labels
            front.append(row)
        else:
            rest.append(row)
    return front + rest


def _train(job: Path, spec: Mapping[str, Any], lock: int) -> dict[str, Any]:
    """Runs the worker to its end; the result's metrics. It holds the folder's lock as well."""
    make_private_dir(str(job))
    (job / SPEC_FILE).write_text(json.dumps(spec), "utf-8")
    (job / CONTROL_FILE).write_text(CONTROL_RUN + "\n", "utf-8")
    argv = [sys.executable, "-m", "potato_training.worker", "--spec", SPEC_FILE]
    with (job / EVENTS_FILE).open("ab") as out, (job / STDERR_FILE).open("ab") as err:
        # A session of its own: Ctrl-C is for the command, which tells the worker.
        worker = subprocess.Popen(
            argv, cwd=job, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True, pass_fds=(lock,)
        )
        try:
            code = worker.wait()
        except BaseException:
            _end(worker, spec["grace_seconds"] + 5)
            raise
    last = _last_event(job)
    if code == 0 and last.get("event") == "result" and last.get("status") == "succeeded":
        return dict(last.get("metrics") or {})
    if last.get("event") == "error":
        raise UserError(str(last.get("message")), str(last.get("install_hint") or ""))
    tail = (job / STDERR_FILE).read_text("utf-8", "replace").strip().splitlines()
    raise UserError(f"the training ended with exit code {code}", tail[-1] if tail else "")


def _end(worker: subprocess.Popen[bytes], patience: float) -> None:
    """Told to end at once, for the end of stdin alone is an agent that may come back; ended when it does not."""
    worker.terminate()
    assert worker.stdin is not None
    worker.stdin.close()
    try:
        worker.wait(patience)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def _last_event(job: Path) -> dict[str, Any]:
    lines = (job / EVENTS_FILE).read_text("utf-8", "replace").splitlines()
    try:
        last = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return last if isinstance(last, dict) else {}


def _right(job: Path, schema: str, held_out: Mapping[str, tuple[str, Any]]) -> list[bool]:
    said = {row["instance_id"]: row["payload"] for row in _rows(job / PREDICTIONS_FILE)
            if row["schema_name"] == schema}
    return [_same(said.get(item), label) for item, (_, label) in held_out.items()]


def _same(said: Any, label: Any) -> bool:
    if isinstance(said, list):
        return sorted(said) == sorted(label if isinstance(label, list) else [label])
    return bool(said == label)
