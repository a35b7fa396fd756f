"""``potato``: finds the command, imports it alone, and turns its errors into one line and an exit code.

Exit codes everywhere: 0 well, 1 failed or would fail, 2 wrong usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..schema.errors import UsageError, UserError

#: Command -> (module, one line of help). Modules are imported only when their command is named.
COMMANDS = {
    "validate": (".validate", "check a config without starting anything"),
    "compile": (".compile", "print the exact scripts that a run would execute"),
    "schema": (".schema_cmd", "print the JSON Schema of config.yaml, for editors"),
    "completion": (".completion", "print the completion script of bash, zsh or tcsh"),
    "training run": (".run", "train a model, with live progress"),
    "training check": (".check", "say whether a run could start on a backend now"),
    "training labels": (".labels", "what there is to learn from: answers, agreement, annotators"),
    "training curve": (".curve", "say whether more labels would make a better model"),
    "training runs": (".runs", "list the project's runs"),
    "training show": (".show", "everything recorded of a run"),
    "training logs": (".logs", "a run's log, live with -f"),
    "training cancel": (".cancel", "cancel a run, or stop it and keep the model"),
    "training serve": (".serve", "the Training page, its API and the agent protocol"),
    "training register": (".register", "issue the token of an agent backend, shown once"),
    "training agent": (".agent", "on the training machine: ask a server for work and do it"),
    "training supervise": (".supervise", "take up what a killed supervisor left behind"),
}

_LEDGER = "make room on a full disk; a damaged ledger can be moved away, the runs' files stay in training/runs"

_EPILOG = """\
  --version           print the version
  --help              this text; every command has its own

Any other command (start, migrate, import, ...) is handed to the Potato annotation server when it is installed
in the same environment.

  potato validate config.yaml --strict
  potato compile --backend cluster
  potato training run config.yaml --trainer sklearn-text

exit code: 0 well, 1 failed or would fail, 2 wrong usage, 130 Ctrl-C
"""
_TRAINING_EPILOG = """\
Every command has a --help of its own.

  potato training check gpu-server
  potato training run config.yaml --trainer sklearn-text
  potato training logs last -f

exit code: 0 well, 1 failed or would fail, 2 wrong usage, 130 Ctrl-C
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code. Never raises for a mistake of the user's."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a character shows its number
            stream.reconfigure(errors="backslashreplace")
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
    except OSError as error:
        _complain(UserError(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)))
        return 1
    except Exception as error:
        if "sqlite3" in sys.modules and isinstance(error, sys.modules["sqlite3"].Error):
            _complain(UserError(f"training/store.sqlite: {error}", _LEDGER))
            return 1
        raise


def _open_what_is_closed() -> None:
    """`>&-` and some service managers leave no stdout at all: the next file that is opened would be it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 pathlib takes its time; open to the end


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("--version", "-V"):
        print("\n".join([f"potato-training {__version__}", *_potatoes_version()]))
        return 0
    if name in ("--help", "-h"):
        print(_help())
        return 0 if arguments else 2
    if name == "training":
        rest = arguments[1:2]
        if rest in ([], ["--help"], ["-h"]):
            print(_help("training "))
            return 0 if rest else 2
        if f"training {rest[0]}" not in COMMANDS:
            raise UsageError(f"there is no command 'training {rest[0]}'", "potato training --help lists them")
        return _run(f"training {rest[0]}", arguments[2:])
    if name in COMMANDS:
        return _run(name, arguments[1:])
    from .handoff import to_potato

    return to_potato(arguments)


def _run(command: str, arguments: list[str]) -> int:
    module = importlib.import_module(COMMANDS[command][0], __package__)
    if hasattr(module, "hand_over"):  # a program of its own, with arguments of its own
        return int(module.hand_over(arguments))
    parser = argparse.ArgumentParser(
        prog=f"{called()} {command}", description=as_called(module.HELP),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if getattr(module, "LASTING", False):
        gc.enable()
    module.configure(parser)
    return int(module.run(parser.parse_args(arguments)))


def called() -> str:
    """The name that this command was called by. Both packages bring a `potato`, and a hint must name ours."""
    name = os.path.basename(sys.argv[0])  # noqa: PTH119 pathlib takes its time
    return "potato-training" if name.startswith("potato-training") else "potato"


def as_called(text: str) -> str:
    """A text that names our commands, with the name that we were called by."""
    if called() == "potato":
        return text
    import re

    ours = "|".join(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))
    return re.sub(rf"(?<![\w/-])potato (?=(?:{ours}|--help)\b)", f"{called()} ", text)


def _potatoes_version() -> list[str]:
    """The annotation server's, by the name of its folder: asking importlib.metadata takes longer than all the rest."""
    for place in sys.path:
        try:
            names = os.listdir(place or ".")  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if name.startswith("potato_annotation-") and name.endswith(".dist-info"):
                return [f"potato-annotation {name[len('potato_annotation-'):-len('.dist-info')]}"]
    return []


def _whose() -> str:
    """Who has the command `potato` here: both packages bring one, and the last that was installed has it."""
    try:
        beside = os.path.join(os.path.dirname(sys.executable), "potato")  # noqa: PTH118, PTH120 pathlib takes its time
        with open(beside, errors="replace") as script:  # noqa: PTH123
            if "potato_training" in script.read(10_000):
                return ""
    except OSError:
        return ""
    return (
        "\nIn this environment `potato` is the annotation server's own command: call these as potato-training.\n"
        "To have both under `potato`: pip install --force-reinstall --no-deps potato-training\n"
    )


def _help(under: str = "") -> str:
    lines = "\n".join(f"  {name:<19} {text}" for name, (_, text) in COMMANDS.items() if name.startswith(under))
    epilog = as_called(_TRAINING_EPILOG if under else _EPILOG)
    return f"usage: {called()} {under}COMMAND [...]\n\n{lines}\n\n{epilog}{_whose()}"


def _complain(error: UserError) -> None:
    if "\n" in error.message or hasattr(error, "findings"):  # a config's findings: file, line, and all in one go
        print(error.message, file=sys.stderr)
        return
    name = called()
    print(f"{name}: {as_called(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"{' ' * len(name)}  {as_called(error.hint)}", file=sys.stderr)


def entry() -> None:
    # A short command leaves no garbage worth looking for; looking costs it a thirtieth of its time.
    gc.disable()
    code = main()
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    entry()
