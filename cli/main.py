"""``potato``: finds the command, imports it alone, and turns its errors into one line and an exit code.

Exit codes everywhere: 0 well, 1 failed or would fail, 2 wrong usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from .. import __version__
from ..schema.errors import UserError

#: Command -> (module, one line of help). Modules are imported only when their command is named.
COMMANDS = {
    "validate": (".validate", "check a config without starting anything"),
    "compile": (".compile", "print the exact scripts that a run would execute"),
    "schema": (".schema_cmd", "print the JSON Schema of config.yaml, for editors"),
    "training": (".training", "train, watch and manage runs"),
}

_EPILOG = """\
Any other command (start, get, list, ...) is handed to the Potato annotation server when it is installed
in the same environment.

  potato validate config.yaml --strict
  potato compile --backend cluster
  potato training run config.yaml --trainer sklearn-text
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code. Never raises for a mistake of the user's."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except UserError as error:
        _complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) went away: no fault, and nothing more to say to it.
        sys.stderr.close()
        return 0


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("--version", "-V"):
        print(f"potato-training {__version__}")
        return 0
    if name in ("--help", "-h"):
        print(_help())
        return 0 if arguments else 2
    if name in COMMANDS:
        module = importlib.import_module(COMMANDS[name][0], __package__)
        parser = argparse.ArgumentParser(
            prog=f"potato {name}", description=module.HELP, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.configure(parser)
        return int(module.run(parser.parse_args(arguments[1:])))
    from .handoff import to_potato

    return to_potato(arguments)


def _help() -> str:
    lines = "\n".join(f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items())
    return (
        f"usage: potato COMMAND [...]\n\n{lines}\n\n  --version  print the version\n"
        f"  --help     this text; every command has its own\n\n{_EPILOG}"
    )


def _complain(error: UserError) -> None:
    print(f"potato: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"        {error.hint}", file=sys.stderr)


def entry() -> None:
    sys.exit(main())


if __name__ == "__main__":
    entry()
