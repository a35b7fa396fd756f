"""``python -m potato_training.cli``: the command, where no script of it is on PATH."""

from .main import entry

entry()
