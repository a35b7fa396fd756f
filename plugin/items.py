"""Live items on disk: what Potato shows and the data files do not hold.

Items can be added while Potato runs, and come from sources that only Potato reads (``data_directory``, tables,
other services). The supervisor, which builds bundles, reads them from training/live_items.jsonl.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from ..project.archive import replacing
from ..project.items import LIVE_ITEMS, file_ids, reads_sources, text_of
from ..project.writeback import alone
from ..schema.config import Config
from ..schema.errors import UserError
from . import names

_log = logging.getLogger("potato_training.plugin")
_BREATH = 500


class LiveItems:
    """The live items of one process, beyond those of the data files."""

    def __init__(self, config: Config):
        self._config = config
        self._path = config.task_dir / LIVE_ITEMS
        self._lock = threading.Lock()
        self._count = 0
        self._last: str | None = None

    def follow(self, items: Any) -> None:
        """Writes down what is new. Only compares a number when nothing is. Raises UserError where it cannot."""
        with self._lock:
            try:
                self._follow(items)
            except OSError as error:
                raise UserError(f"live items cannot be written: {error}", "make room in training/") from None

    def after_fork(self) -> None:
        """In a forked child."""
        self._lock = threading.Lock()

    def _follow(self, items: Any) -> None:
        count = items.item_count()
        if count == self._count and self._last is not None:
            return
        ids = list(items.get_instance_ids())
        grown = self._last is not None and len(ids) > self._count and ids[self._count - 1] == self._last
        if grown:
            lines = list(self._lines(items, ids[self._count:]))
            if lines:
                with alone(self._path):
                    self._append(lines)
        else:
            self._write_all(items, ids)
        self._count, self._last = len(ids), ids[-1] if ids else ""

    def _write_all(self, items: Any, ids: Sequence[str]) -> None:
        try:
            known = file_ids(self._config) if reads_sources(self._config) else set()
        except UserError as error:  # a run says so too, and does not begin
            _log.warning("live items are not written: %s", error.message)
            return
        rest = [one for one in ids if one not in known]
        del known
        with alone(self._path):
            others, ours = list(self._of_others()), self._lines(items, rest)
            first = next(ours, None)
            if first is None and not others:
                self._path.unlink(missing_ok=True)
                return
            with replacing(self._path) as out:
                out.write(_line({"live_items": 1, "pid": os.getpid()}))
                for line in others:
                    out.write(line)
                for line in chain([first] if first else [], ours):
                    out.write(line)

    def _append(self, lines: Iterable[bytes]) -> None:
        new = not self._path.exists()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "ab") as out:
            if new:
                out.write(_line({"live_items": 1, "pid": os.getpid()}))
            for line in lines:
                out.write(line)

    def _lines(self, items: Any, ids: Sequence[str]) -> Iterator[bytes]:
        """Those that only check an annotator's attention are nobody's to learn from. No text is an empty one."""
        checks = names.check_items()
        for n, one in enumerate(ids):
            if n % _BREATH == _BREATH - 1:
                time.sleep(0.001)  # requests go first
            item = None if one in checks else items.find_item(one)
            if item is not None:
                text = text_of(item.get_data().get(self._config.text_key))
                yield _line({"id": str(one), "text": text or ""})

    def _of_others(self) -> Iterator[bytes]:
        """Lines of another server process of this project, which may know items that this one does not."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            try:
                pid = int(json.loads(file.readline())["pid"])
            except (ValueError, TypeError, KeyError):
                return
            if pid != os.getpid() and _lives(pid):
                yield from (line for line in file if line.endswith(b"\n"))


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
