"""``potato training runs``: the ledger, newest first."""

from __future__ import annotations

import argparse
from typing import Any

from ..schema.errors import UsageError
from .common import add_config, say, say_json, table, task_dir, took, when
from .main import as_called

HELP = """\
Lists the project's runs, the newest first. MACRO-F1 is of the held-out items, one number a schema.

  potato training runs
  potato training runs study/config.yaml --limit 50 --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="at most so many; default 20")
    parser.add_argument("--json", action="store_true", help="one JSON array of full records")


def run(args: argparse.Namespace) -> int:
    from ..runtime.lookup import open_store

    if args.limit < 1:
        raise UsageError(f"--limit {args.limit}: at least 1")
    store = open_store(task_dir(args.config))
    runs = store.runs(args.limit) if store else []
    if args.json:
        say_json([record(r) for r in runs])
        return 0
    if not runs:
        say(as_called("no runs in this project yet; potato training run starts one"))
        return 0
    rows = [["RUN", "STATUS", "TRAINER", "SCHEMAS", "RAN ON", "MACRO-F1", "STARTED", "TOOK"]]
    for r in runs:
        rows.append([
            r.run_id, r.state, r.trainer, ",".join(r.schemas), ran_on(r), held_out(r), when(r.started), took(r)
        ])
    say(table(rows))
    for r in runs:
        if r.state == "queued" and r.step:
            say(f"{r.run_id}: {r.step}")
    live = {r.run_id for r in runs if not r.over}  # what a live run holds, it holds as it should
    for release in (r for r in (store.releases() if store else []) if r.run_id not in live):
        say(f"still to be released: {release.run_id} {release.last_error}".rstrip())
    return 0


def record(r: Any) -> dict[str, Any]:
    """A run as plain values."""
    return dict(r._asdict())


def ran_on(r: Any) -> str:
    host = (r.facts.get("machine") or {}).get("host")
    return f"{r.backend} ({host})" if host else r.backend


def held_out(r: Any) -> str:
    """macro-F1 of each schema on test, else val."""
    found = []
    for splits in ((r.facts.get("result") or {}).get("metrics") or {}).values():
        for split in ("test", "val"):
            value = (splits.get(split) or {}).get("macro_f1") if isinstance(splits, dict) else None
            if isinstance(value, (int, float)):
                found.append(f"{value:.3f}")
                break
        else:
            found.append("-")
    return " ".join(found)
