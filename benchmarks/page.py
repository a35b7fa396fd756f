#!/usr/bin/env python3
"""How quickly the page answers with 200 runs in the ledger and 100,000 events in one of them.

    python benchmarks/page.py [--runs 200] [--events 100000] [--rounds 60]

Makes a project in a temporary folder, fills its ledger, starts a real server and asks it over HTTP, one
request after another on new connections. For comparison the same client asks for a static file of the same
server: the floor of a request on this machine, today.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEY = "benchmark"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = fill(Path(folder), args.runs, args.events)
        server = subprocess.Popen(
            [sys.executable, "-m", "potato_training.cli", "training", "serve", "-p", "0"], cwd=folder,
            stdout=subprocess.PIPE, text=True,
        )
        try:
            port = int(re.search(r":(\d+)/", server.stdout.readline())[1])
            measure(port, run, args)
        finally:
            server.terminate()
            server.wait()
    return 0


def measure(port: int, run: str, args: argparse.Namespace) -> None:
    css = re.search(r"static/page\.css\?v=\w+", ask(port, "")[1])[0]
    pages = {
        "a static file (the floor)": css, "page, 25 runs shown": "", f"page, all {args.runs} runs shown": "?limit=200",
        "page's live part": "live", f"run page, {args.events:,} events": f"runs/{run}",
        "run page's live part": f"runs/{run}/live", "API runs?limit=200": "api/runs?limit=200",
        "API events, 2,000 from the middle": f"api/runs/{run}/events?after={args.events // 2}",
    }
    print(f"{'':38} {'first':>8} {'median':>8} {'p95':>8}   ms")
    for name, path in pages.items():
        times = [ask(port, path)[0] for _ in range(args.rounds)]
        rest = sorted(times[1:])
        p95 = rest[min(len(rest) - 1, int(len(rest) * 0.95))]
        print(f"{name:38} {times[0]:8.1f} {statistics.median(rest):8.1f} {p95:8.1f}")


def ask(port: int, path: str) -> tuple[float, str]:
    """(milliseconds, the text) of one request on a connection of its own."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", f"/admin/training/{path}".rstrip("/"), headers={"X-API-Key": KEY})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if answer.status != 200:
        sys.exit(f"{path}: {answer.status} {text[:300]}")
    return (time.perf_counter() - begun) * 1000, text


def fill(folder: Path, runs: int, events: int) -> str:
    """A project whose newest run has so many events; its id."""
    from potato_training.runtime.places import Places
    from potato_training.runtime.store import Store

    config = {
        "task_dir": ".", "data_files": ["items.jsonl"], "item_properties": {"id_key": "id", "text_key": "text"},
        "output_annotation_dir": "annotation_output", "admin_api_key": KEY,
        "annotation_schemes": [{"annotation_type": "radio", "name": "s", "description": "?", "labels": ["a", "b"]}],
        "model_training": {"enabled": True},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    (folder / "items.jsonl").write_text('{"id": "1", "text": "x"}\n')
    places = Places(folder)
    places.prepare()
    store = Store(places.store)
    per_label = {name: {"precision": 0.8, "recall": 0.8, "f1": 0.8, "n": 50} for name in ("a", "b")}
    m = {"n": 100, "accuracy": 0.8, "macro_f1": 0.8, "ece": 0.05, "per_label": per_label,
         "confusion": {"cells": [[0, 0, 40], [0, 1, 10], [1, 0, 10], [1, 1, 40]]}}
    facts = {
        "machine": {"host": "vm", "python": "3.11", "device": "cpu", "threads": 2, "gpu": [], "software": {}},
        "splits": {"train": 700, "val": 150, "test": 150, "unlabeled": 9000},
        "result": {"status": "succeeded", "label_order": {"s": ["a", "b"]}, "metrics": {"s": {"val": m, "test": m}}},
    }
    for n in range(runs):
        name = f"20260101-000000-{n:06x}"
        store.insert(name, trainer="sklearn-text", schemas=("s",), params={"C": n}, backend="local",
                     config="config.yaml", trigger="cli", started_by="bench")
        for state in ("building", "running", "succeeded"):
            store.advance(name, state)
        store.record(name, facts=facts)
        store.settle(name)
    run_dir = places.run_dir(name)
    run_dir.mkdir(parents=True)
    with (run_dir / "events.jsonl").open("w") as file:
        for n in range(events):
            event = {"v": 1, "event": "metric", "t": 1.7e9 + n / 10, "attempt": 1, "split": "train" if n % 2 else "val",
                     "name": "loss", "value": 1 / (1 + n / 1000), "step": n}
            file.write(json.dumps(event, separators=(",", ":")) + "\n")
    with (run_dir / "run.log").open("w") as file:
        for n in range(events):
            file.write(f"2026-01-01T00:00:00Z step {n} of {events} is done\n")
    with (run_dir / "predictions.jsonl").open("w") as file:
        for n in range(9300):
            row = {"instance_id": f"i{n}", "schema_name": "s", "payload": "a", "confidence": 0.5 + n % 50 / 100,
                   "split": "unlabeled", "scores": {"a": 0.7, "b": 0.3}}
            file.write(json.dumps(row) + "\n")
    return name


if __name__ == "__main__":
    sys.exit(main())
