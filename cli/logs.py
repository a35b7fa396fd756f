"""``potato training logs``: a run's log."""

from __future__ import annotations

import argparse
import time

from .common import say, task_dir
from .show import add_run, config_alone

HELP = """\
Prints a run's log; with -f goes on until the run has ended.

  potato training logs last -f
  potato training logs last --agent
"""
#: It goes on for long: garbage is collected.
LASTING = True
_LOOK_S = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser, nargs="?", default="last")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run has ended")
    parser.add_argument("--agent", action="store_true", help="agent.log: the agent's own output")


def run(args: argparse.Namespace) -> int:
    from ..runtime import lookup, places, summon
    from ..runtime.eventlog import Tail
    from ..runtime.places import Places

    config_alone(args)
    where = Places(task_dir(args.config))
    store = lookup.open_store(where.task_dir)
    found = lookup.find(store, args.run)
    assert store is not None
    tail = Tail(where.run_dir(found.run_id) / (places.AGENT_LOG if args.agent else places.RUN_LOG))
    while True:
        now = store.get(found.run_id)
        lines = tail.lines()
        for line in lines:
            say(line)
        if not lines and (not args.follow or now is None or (now.over and now.settled)):
            return 0
        if not lines:
            summon.ensure_supervisor(where)
            time.sleep(_LOOK_S)
