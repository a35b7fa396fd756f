#!/usr/bin/env python3
"""Speed and memory of the bundle, over json + gzip of the same lines in the same run.

    python benchmarks/bundle.py [--items 1000000] [--format jsonl|json|csv|tsv] [--rounds 3] [--folder DIR]

Makes a project of that many items, a tenth of them annotated by three annotators, and then in turn, each in a
process of its own: builds the bundle, and reads, writes and compresses the same records with json and gzip (at
the bundle's own compression level, and at gzip's usual 6). Prints medians, ratios and peak resident memory.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LABELS = [f"label {n}" for n in range(8)]


def make_project(folder: Path, n_items: int, kind: str) -> None:
    rng = random.Random(0)
    starts, ends = ("ka", "lo", "mi", "ter", "nu", "sal", "pre", "vi", "on", "gra"), ("ri", "ta", "son", "le", "du")
    words = [start + end for start in starts for end in ends]
    data = folder / "data"
    data.mkdir(parents=True)
    rows = ({"id": f"item-{n:07}", "text": " ".join(rng.choices(words, k=rng.choice((5, 12, 25, 40, 90))))}
            for n in range(n_items))
    with (data / f"items.{kind}").open("w", encoding="utf-8", newline="") as file:
        if kind in ("csv", "tsv"):
            writer = csv.DictWriter(file, ["id", "text"], delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
        elif kind == "json":
            for n, row in enumerate(rows):
                file.write(("[" if n == 0 else ",\n") + json.dumps(row))
            file.write("]")
        else:
            for row in rows:
                file.write(json.dumps(row) + "\n")
    ids = [f"item-{n:07}" for n in rng.sample(range(n_items), n_items // 10)]
    truth = {item: rng.choice(LABELS) for item in ids}
    for who in ("ann", "bob@example.org", "cat"):
        said = {item: rng.choice(LABELS) if rng.random() < 0.1 else label for item, label in truth.items()}
        state = {
            "user_id": who,
            "instance_id_ordering": [f"item-{n:07}" for n in range(n_items)],
            "instance_id_to_label_to_value": {i: [[{"schema": "kind", "name": x}, x]] for i, x in said.items()},
            "instance_id_to_behavioral_data": {i: {"instance_id": i, "total_time_ms": 900} for i in ids},
            "origin": {},
        }
        target = folder / "annotation_output" / who / "user_state.json"
        target.parent.mkdir(parents=True)
        with target.open("w", encoding="utf-8") as file:
            json.dump(state, file, indent=2)
    config = {
        "task_dir": ".", "data_files": [f"data/items.{kind}"],
        "item_properties": {"id_key": "id", "text_key": "text"},
        "annotation_schemes": [
            {"annotation_type": "radio", "name": "kind", "description": "?", "labels": LABELS}
        ],
        "model_training": {"enabled": True},
    }
    (folder / "config.yaml").write_text(json.dumps(config))


def records(path: Path):
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix in (".csv", ".tsv"):
            yield from csv.DictReader(file, delimiter="," if path.suffix == ".csv" else "\t")
        elif path.suffix == ".json":
            yield from json.load(file)
        else:
            yield from map(json.loads, file)


def plain(folder: Path, target: Path, level: int) -> None:
    """json + gzip of the same records."""
    (path,) = (folder / "data").iterdir()
    with gzip.open(target, "wb", compresslevel=level) as out:
        for row in records(path):
            out.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


def bundle(folder: Path, target: Path) -> None:
    from potato_training.project import build_bundle
    from potato_training.schema.config import load_or_raise

    build_bundle(load_or_raise(folder / "config.yaml"), ["kind"], target)


def measured(folder: Path, job: str, *more: str) -> tuple[float, float, float]:
    """Seconds, peak resident MB and MB written of one job in a process of its own.

    This process must stay small itself: Linux counts the memory before exec into the child's peak.
    """
    target = folder / f"out-{job}"
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, __file__, "--job", job, "--folder", str(folder), *more])
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{job} failed")
    child.returncode = 0
    return seconds, usage.ru_maxrss / 1024, target.stat().st_size / 1e6 if target.exists() else 0.0


def main() -> None:
    from potato_training.project.archive import LEVEL

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--format", default="jsonl", choices=("jsonl", "json", "csv", "tsv"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work; default a temporary directory")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        target = args.folder / f"out-{args.job}"
        if args.job == "make":
            make_project(args.folder, args.items, args.format)
        elif args.job == "bundle":
            bundle(args.folder, target)
        else:
            plain(args.folder, target, int(args.job))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        measured(folder, "make", "--items", str(args.items), "--format", args.format)
        found: dict[str, list[tuple[float, float, float]]] = {"bundle": [], str(LEVEL): [], "6": []}
        for _ in range(args.rounds):
            for job, results in found.items():
                results.append(measured(folder, job))
        medians = {job: statistics.median(r[0] for r in results) for job, results in found.items()}
        print(f"{args.items:,} items ({args.format}), a tenth annotated by 3; median of {args.rounds} rounds")
        for job, results in found.items():
            what = "bundle" if job == "bundle" else f"json + gzip -{job}"
            line = f"{what:16} {medians[job]:7.1f} s {results[0][2]:7.1f} MB"
            if job == "bundle":
                line += f"   peak memory {max(r[1] for r in results):.0f} MB"
            else:
                line += f"   the bundle has {medians[job] / medians['bundle']:.2f} times its speed"
            print(line)


if __name__ == "__main__":
    main()
