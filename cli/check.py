"""``potato training check``: could a run start there now?"""

from __future__ import annotations

import argparse

from .common import say, say_json

HELP = """\
Says whether a run could start on a backend now. Exit code 0 yes, 1 no.

  potato training check local
  potato training check local config.yaml --trainer sklearn-text --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backend", metavar="BACKEND", help="a backend of the config, or local")
    parser.add_argument("config", nargs="?", default="config.yaml", metavar="CONFIG", help="default: config.yaml")
    parser.add_argument("--trainer", metavar="T", help="default: auto_retrain's, else hf-text-classification")
    parser.add_argument("--json", action="store_true", help="the same report as JSON")


def run(args: argparse.Namespace) -> int:
    from ..runtime.checks import check
    from .run import checked

    report = check(checked(args.config), args.backend, args.trainer)
    if args.json:
        say_json(report.to_json())
    else:
        say("\n".join(report.lines))
    return 0 if report.ok else 1
