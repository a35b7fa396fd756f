"""``potato training agent``: the pull agent, on the training machine."""

from __future__ import annotations

import argparse
import os
import sys

#: Option -> what its value is called in --help. For completion only: the agent reads its own arguments.
OPTIONS = {
    "--server": "URL", "--backend": "NAME", "--token-file": "FILE", "--python": "PYTHON", "--workdir": "DIR",
    "--slurm-config": "FILE", "--once": "", "--keep": "", "--ca-file": "FILE",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options alone."""
    for option, value in OPTIONS.items():
        if value:
            parser.add_argument(option, metavar=value)
        else:
            parser.add_argument(option, action="store_true")


def hand_over(arguments: list[str]) -> int:
    """Becomes the agent, which is a program of its own, with its own --help, and lighter than this one."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "potato_training.worker.agent_poll", *arguments])  # noqa: S606
