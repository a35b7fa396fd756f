"""run.log: what happened to a run, in timestamped lines that a person reads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from .places import RUN_LOG


def log(run_dir: Path, *lines: str) -> None:
    """Appends lines, in one write so that two writers never mix theirs. A run dir that is gone is left so."""
    if not lines:
        return
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    data = "".join(f"{stamp} {line}\n" for line in _single(lines)).encode("utf-8", "replace")
    try:
        descriptor = os.open(run_dir / RUN_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def one_line(text: str) -> str:
    return " ".join(text.split())


def _single(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        yield from line.splitlines() or [""]
