"""What the training commands share: finding the project, and words for times and states."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..schema.errors import UsageError, UserError

if TYPE_CHECKING:
    from ..runtime.store import Run

_TASK_DIR = re.compile(r"""^task_dir:[ \t]+("?)([\w./-]+)\1[ \t]*(?:#.*)?$""", re.MULTILINE)


#: A column of a table is no wider; labels may be as long as somebody made them.
_WIDEST = 60
#: With less room than this the ledger itself cannot be written.
_ROOM_BYTES = 1 << 20


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", default="config.yaml", metavar="CONFIG", help="default: config.yaml")


def task_dir(config: str) -> Path:
    """The project's directory, without checking the config: the ledger can be read whatever is wrong in there.

    A plain ``task_dir: x`` line is read as it stands, so that asking for a list loads no YAML library.
    """
    path = Path(config)
    if path.exists() and not path.is_file():
        raise UserError(f"{config}: not a file", "name the project's config file")
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise UserError(f"{config}: {error.strerror or error}", "name the project's config file") from None
    found = _TASK_DIR.findall(text)
    if len(found) == 1:
        value = found[0][1]
    elif "task_dir" in text:
        from ..schema.config import load_or_raise

        return load_or_raise(path).task_dir
    else:
        value = "."
    return (path.parent / value).resolve()


def named(schemas: str) -> list[str]:
    """The names in ``A,B``. UsageError when there should be some and is none: a script left its variable empty."""
    names = [name for part in schemas.split(",") if (name := part.strip())]
    if schemas and not names:
        raise UsageError(f"--schemas {schemas}: no name is in there", "leave the option out for the default")
    return names


def full_disk(folder: Path) -> str:
    """A line that says that nothing more can be written there; empty while there is room."""
    about = os.statvfs(folder)
    if about.f_bavail * about.f_frsize >= _ROOM_BYTES:
        return ""
    return f"the disk that holds {folder} is full: make room, the run goes on or ends then"


def when(moment: float | None) -> str:
    """Local time, to the second."""
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def took(run: Run) -> str:
    """How long a run has been at it, from leaving the queue."""
    if run.started is None:
        return ""
    seconds = int((run.ended or time.time()) - run.started)
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}:{minutes:02d}:{seconds % 60:02d}"


def table(rows: list[list[str]]) -> str:
    """Left-aligned columns, the first row as the head."""
    rows = [[shown(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def shown(cell: str) -> str:
    """A cell of a table: one bounded piece of text, without what would turn a terminal's writing around."""
    text = "".join(c if c.isprintable() else "?" for c in cell)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def say(text: str = "") -> None:
    print(text, flush=True)


def say_exactly(text: str) -> None:
    """For what another program reads (scripts, JSON): UTF-8, whatever a terminal here can show."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and out.encoding.lower().replace("-", "") != "utf8":
        out.flush()
        out.buffer.write(text.encode("utf-8", "backslashreplace"))
    else:
        out.write(text)
    out.flush()


def say_json(value: Any) -> None:
    import json

    say_exactly(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
