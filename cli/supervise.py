"""``potato training supervise``: the supervisor in the foreground, or a word that one runs."""

from __future__ import annotations

import argparse

from .common import add_config, say, task_dir

HELP = """\
Takes up the runs that a killed supervisor left behind, and works until nothing is queued, running or to be
released. Front doors start it on demand; this is for a service manager, or after a reboot.

  potato training supervise config.yaml
"""
#: It goes on for long: garbage is collected.
LASTING = True


def configure(parser: argparse.ArgumentParser) -> None:
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    from ..runtime import lookup, summon, supervisor
    from ..runtime.places import Places

    where = Places(task_dir(args.config))
    if lookup.open_store(where.task_dir) is None:
        say("no runs in this project yet: nothing to supervise")
        return 0
    if summon.supervisor_runs(where):
        say("a supervisor of this project is running already")
        return 0
    return supervisor.main(where.task_dir)
