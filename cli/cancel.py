"""``potato training cancel``: end a run, with or without its model."""

from __future__ import annotations

import argparse

from ..schema.errors import UserError
from .common import say, task_dir
from .show import add_run

HELP = """\
Cancels a run: its worker is stopped and its results are thrown away. With --keep training ends at the next
batch instead; the best model so far is evaluated and kept, and the run succeeds.

  potato training cancel last
  potato training cancel 20261130-0915 study/config.yaml --keep
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--keep", action="store_true", help="stop training and keep the best model so far")


def run(args: argparse.Namespace) -> int:
    from ..runtime import lookup, summon
    from ..runtime.places import Places

    where = Places(task_dir(args.config))
    store = lookup.open_store(where.task_dir)
    found = lookup.find(store, args.run)
    assert store is not None
    if store.wish(found.run_id, "keep" if args.keep else "cancel") == "over":
        raise UserError(f"run {found.run_id} is over: {found.state}")
    summon.ensure_supervisor(where)
    say(f"{'stopping and keeping' if args.keep else 'cancelling'} run {found.run_id}")
    return 0
