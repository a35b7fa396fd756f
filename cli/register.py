"""``potato training register``: a token for an agent backend, shown once."""

from __future__ import annotations

import argparse

from ..schema.errors import UsageError
from .common import say

HELP = """\
Issues the token with which an agent on another machine asks this server for work. It is shown once; registering
again replaces it, and the old one is worth nothing at once.

  potato training register lab-workstation config.yaml
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backend", metavar="BACKEND", help="a backend of type agent")
    parser.add_argument("config", nargs="?", default="config.yaml", metavar="CONFIG", help="default: config.yaml")


def run(args: argparse.Namespace) -> int:
    from ..runtime import request, tokens
    from ..runtime.places import Places
    from ..runtime.store import Store
    from .run import checked

    config = checked(args.config)
    request.known_backend(config, args.backend)
    kind = config.backends[args.backend].type
    if kind != "agent":
        raise UsageError(
            f"backend {args.backend!r} is of type {kind}, which needs no token", "only agent backends are registered"
        )
    where = Places(config.task_dir)
    where.prepare()
    token = tokens.issue(Store(where.store), tokens.BACKEND, args.backend)
    say(f"Token for backend '{args.backend}' (shown once; registering again replaces it):\n")
    say(f"  {token}\n")
    say("On the training machine:\n")
    say(f"  export POTATO_TRAINING_TOKEN={token}")
    say(f"  potato training agent --server http://<this-server>:8000 --backend {args.backend}")
    return 0
