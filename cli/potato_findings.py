"""What the installed annotation server finds in a config: our `validate` stands where its own would.

Potato is asked as a program of its own; nothing of it is imported here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

from ..schema.check import Report, config_schema
from ..schema.findings import ERROR, NOTE, WARNING, Finding
from ..schema.nodes import Node

_TIMEOUT_S = 120
#: A path in one of Potato's sentences: annotation_schemes[0].labels[1].
_PATH = re.compile(r"[A-Za-z_][\w-]*(?:\[\d+\])*(?:\.[A-Za-z_][\w-]*(?:\[\d+\])*)*")
_QUOTED = re.compile(r"'([^']+)'")
_STEP = re.compile(r"([A-Za-z_][\w-]*)|\[(\d+)\]")


def ask(path: str) -> dict | None:
    """Potato's own report on the file, or None when it could not be had."""
    try:
        said = subprocess.run([sys.executable, "-m", "potato.validate_cli", "--json", "--", path], capture_output=True,
                              text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
        value = json.loads(said.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return value if isinstance(value, dict) else None


def add_to(report: Report, said: dict | None) -> bool:
    """Adds Potato's findings to ours, but those about keys that are ours to judge and those that we have as well.
    Says whether Potato had any say.

    Warnings that Potato acknowledged are added as warnings: the caller applies validation.acknowledge to all.
    """
    root = report.root
    assert root is not None
    if said is None:
        report.findings.append(Finding(NOTE, "", 1, 1, "the installed Potato could not be asked about its own keys",
                                       "see what `python -m potato.validate_cli` says"))
        return False
    _say_who_knows_them(report, said)
    wrong = {f.path for f in report.of(ERROR)}
    for kind, level in (("errors", ERROR), ("unknown_keys", WARNING), ("other_warnings", WARNING),
                        ("acknowledged", WARNING), ("notes", NOTE)):
        for entry in said.get(kind) or ():
            message = " ".join(str(entry).split())
            where, node = _place(root, message)
            ours = "model_training" in message or message.startswith("validation.acknowledge entry")
            if message and not ours and not (level == ERROR and where in wrong):
                report.findings.append(Finding(level, where, node.line, node.column, message))
    return True


def _say_who_knows_them(report: Report, said: dict) -> None:
    """Keys of ours are no mistake, but Potato's own server knows them through the plugin alone."""
    ours = config_schema()["$defs"]["model_training"]["properties"]
    quoted = [name for entry in said.get("unknown_keys") or () for name in _QUOTED.findall(str(entry))]
    unknown = [name for name in quoted if name.startswith("model_training.") and name.split(".")[1] in ours]
    if unknown and report.root is not None:
        where, node = _place(report.root, f"'{unknown[0]}'")
        names = ", ".join(name.partition(".")[2] for name in unknown)
        report.findings.append(Finding(
            NOTE, where, node.line, node.column, f"Potato's own server does not know these keys: {names}",
            "with `plugins: [training-backends]` it trains as this config says"))


def _place(root: Node, message: str) -> tuple[str, Node]:
    """The key that the message is about, from its beginning or in quotes, and the node there; "" and the root when
    it names none that the config has."""
    for path in (message.split(" ")[0], *_QUOTED.findall(message)):
        node: Node | None = None
        here: Node | None = root
        for name, number in _STEP.findall(path) if _PATH.fullmatch(path) else ():
            if here is None:
                break
            if name:
                pair = here.value.get(name) if here.kind == "mapping" else None
                step, here = pair or (None, None)
            else:
                step = here = here.elements()[int(number)] if int(number) < len(here.elements()) else None
            node = step or node
        if node is not None:
            return path, node
    return "", root
