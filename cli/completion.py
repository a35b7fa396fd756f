"""``potato completion``: what makes a shell complete commands, options and files."""

from __future__ import annotations

import argparse
import importlib
import sys

HELP = "print the completion script of a shell"

EPILOG = """\
examples:
  potato completion bash > ~/.local/share/bash-completion/completions/potato
  potato completion bash --name potato-training > ~/.local/share/bash-completion/completions/potato-training
  potato completion zsh > "${fpath[1]}/_potato"

A new shell completes then. The script holds commands and options only, no project's names.
"""

SHELLS = ("bash", "zsh", "tcsh")
#: What a value is, by its name in --help.
_FILES, _DIRECTORIES = {"CONFIG", "FILE", "F"}, {"DIR", "D"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=SHELLS)
    parser.add_argument("--name", choices=("potato", "potato-training"), default="potato",
                        help="the command to complete; default: potato")


def run(args: argparse.Namespace) -> int:
    import shtab

    sys.stdout.write(shtab.complete(whole_parser(args.name), args.shell) + "\n")
    return 0


def whole_parser(name: str) -> argparse.ArgumentParser:
    """One parser with every command below it; ``potato`` itself never makes it, since it imports one command only."""
    import shtab

    from .main import COMMANDS

    whole = argparse.ArgumentParser(prog=name)
    whole.add_argument("--version", "-V", action="store_true", help="print the version")
    commands = whole.add_subparsers()
    training = commands.add_parser("training", help="train models, and see how they do").add_subparsers()
    for words, (module_name, help_line) in COMMANDS.items():
        module = importlib.import_module(module_name, __package__)
        group = training if words.startswith("training ") else commands
        parser = group.add_parser(words.rpartition(" ")[2], help=help_line, description=help_line)
        module.configure(parser)
        for action in parser._actions:  # argparse has no other way to go through them
            if action.metavar in (*_FILES, *_DIRECTORIES):
                action.complete = shtab.FILE if action.metavar in _FILES else shtab.DIRECTORY  # type: ignore[attr-defined]
    return whole
