"""``potato training agent``: the pull agent, on the training machine."""

from __future__ import annotations

import os
import sys


def hand_over(arguments: list[str]) -> int:
    """Becomes the agent, which is a program of its own, with its own --help, and lighter than this one."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "potato_training.worker.agent_poll", *arguments])  # noqa: S606
