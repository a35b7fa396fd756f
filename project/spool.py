"""Items on their way into the splits, on disk: memory does not grow with their number."""

from __future__ import annotations

import hashlib
import io
import json
import os
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..schema.config import Config, Scheme
from ..schema.errors import UserError
from .aggregate import Joined, join
from .annotations import Annotations, Check
from .archive import BLOCK
from .items import Item, WithoutText, read_items
from .splits import SPLITS, split_of

#: The members' order in the archive, after manifest.json.
PARTS = (*SPLITS, "unlabeled")

#: ``on_progress(phase, done)``: phase is "annotations", "items" or "packing"; done counts items.
Progress = Callable[[str, int], None]

#: A label, or the labels of a multilabel item, in the scheme's order.
Label = str | tuple[str, ...]

_quote = json.JSONEncoder(ensure_ascii=False).encode


class _Part:
    """The lines of one member, on disk, with their number and digest."""

    def __init__(self, path: Path):
        self._file: BinaryIO = open(  # noqa: SIM115, PTH123 - closed by the spool
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b", buffering=BLOCK
        )
        self._digest = hashlib.sha256()
        self.n = 0

    def add(self, line: bytes) -> None:
        self._file.write(line)
        self._digest.update(line)
        self.n += 1

    def read(self) -> tuple[BinaryIO, int]:
        """The file at its start, and its size."""
        size = self._file.seek(0, io.SEEK_END)
        self._file.seek(0)
        return self._file, size

    def sha256(self) -> str:
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()


class Spool:
    """The parts, and what was counted on the way.

    One pass over the data files writes the lines of items without labels as they are, and those of items with
    answers up to their labels: which items exist is known only at the end of the pass, and answers to others
    must not count in the consensus.
    """

    def __init__(
        self, folder: Path, config: Config, annotations: Annotations, check: Check, on_progress: Progress
    ):
        self.config = config
        self.annotations = annotations
        self.check, self.on_progress = check, on_progress
        self.parts = {part: _Part(folder / part) for part in PARTS}
        self._begun = _Part(folder / "begun")
        self._order = array("I")
        self.seen = bytearray(len(annotations.items))
        self.items = 0
        self.without = WithoutText()
        #: Annotated items among those without a text.
        self.unread = 0
        self.mended = 0
        self.counts: dict[str, Counter[Label]] = {}
        self.train: dict[str, Counter[Label]] = {}
        self.label_digest = ""

    def close(self) -> None:
        for part in (*self.parts.values(), self._begun):
            part.close()

    def take_items(self) -> None:
        numbers = self.annotations.items
        for item in read_items(self.config, self._no_text):
            number = numbers.get(item.id)
            if number is not None and not any(votes.node(number) for votes in self.annotations.votes.values()):
                self.seen[number] = 1  # its answers were left out
                number = None
            if number is None:
                self.parts["unlabeled"].add(self._line(item, ',"labels":{}}\n'))
            else:
                self.seen[number] = 1
                self._order.append(number)
                self._begun.add(self._line(item, "\n"))
            self.items += 1
            if self.items % 1000 == 0:
                self.check()
                self.on_progress("items", self.items)

    def _no_text(self, item_id: str) -> None:
        self.without(item_id)
        self.unread += item_id in self.annotations.items

    def join_labels(self, schemes: Sequence[Scheme]) -> dict[str, Joined]:
        """Joins the answers, finishes the begun lines and puts them into their splits."""
        training = self.config.training
        seed, shares = int(training["split_seed"]), training["splits"]
        votes = self.annotations.votes
        joined = {
            scheme.name: join(
                votes[scheme.name], self.seen, method=training["aggregation"], seed=seed, check=self.check
            )
            for scheme in schemes
        }
        self.counts = {name: Counter() for name in joined}
        self.train = {name: Counter() for name in joined}
        ids = list(self.annotations.items)
        digests: list[bytes] = []
        lines, _ = self._begun.read()
        for n, number in enumerate(self._order):
            if n % 1000 == 0:
                self.check()
            item_id = ids[number]
            split = split_of(item_id, seed, shares)
            labels: dict[str, str | list[str]] = {}
            for name, result in joined.items():
                node = votes[name].node(number)
                if node:
                    label = labels[name] = result.label(item_id, node)
                    key = label if isinstance(label, str) else tuple(label)
                    self.counts[name][key] += 1
                    if split == "train":
                        self.train[name][key] += 1
            text = compact(labels)
            digests.append(hashlib.sha256(f"{item_id}\0{text}".encode("utf-8", "surrogatepass")).digest())
            self.parts[split].add(lines.readline()[:-1] + f',"labels":{text}}}\n'.encode())
        self.label_digest = hashlib.sha256(b"".join(sorted(digests))).hexdigest()
        return joined

    def _line(self, item: Item, end: str) -> bytes:
        try:
            return f'{{"id":{_quote(item.id)},"text":{_quote(item.text)}{end}'.encode()
        except UnicodeEncodeError:
            # Half a surrogate pair, which JSON can spell and UTF-8 cannot. An id must stay what it is.
            if item.id != _mend(item.id):
                raise UserError(f"the id {json.dumps(item.id)} holds half a character") from None
            self.mended += 1
            return f'{{"id":{_quote(item.id)},"text":{_quote(_mend(item.text))}{end}'.encode()


def _mend(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
