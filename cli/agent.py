"""``potato training agent``: the pull agent, on the training machine."""

from __future__ import annotations

import argparse
import os
import sys

HELP = """\
Asks a server for training jobs and runs them on this machine, until stopped. It needs no inbound port: only the
server must be reachable from here. The token comes from `potato training register` on the server.

  export POTATO_TRAINING_TOKEN=...
  potato training agent --server https://annotate.example.org --backend lab-workstation
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--server", required=True, metavar="URL", help="the annotation server")
    add("--backend", required=True, metavar="NAME", help="this machine's name in the server's config")
    add("--token-file", metavar="FILE", help="the token, mode 0600 (default: POTATO_TRAINING_TOKEN)")
    add("--python", metavar="PYTHON", help="the worker's interpreter (default: this one)")
    add("--workdir", metavar="DIR", help="jobs and models (default: ~/.cache/potato-training)")
    add("--once", action="store_true", help="end after one job")
    add("--keep", action="store_true", help="keep bundles after the end of their job")
    add("--ca-file", metavar="FILE", help="certificates to trust instead of the system's")


def run(args: argparse.Namespace) -> int:
    """Becomes the agent, which is a program of its own and lighter than this one."""
    words = [sys.executable, "-m", "potato_training.worker.agent_poll"]
    for name in ("server", "backend", "token_file", "python", "workdir", "ca_file"):
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", value]
    words += [f"--{name}" for name in ("once", "keep") if getattr(args, name)]
    sys.stdout.flush()
    os.execv(sys.executable, words)  # noqa: S606
