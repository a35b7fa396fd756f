"""A trainer on the bench: small and odd data, a run that listens and interrupts, a place for its files."""

from __future__ import annotations

import json
import math
import os
import random
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Type

from ..bundle import Example, Row
from ..failures import Cancelled
from .base import Handle, Task, Trainer

LABELS = ("b", "a", "never seen", "c")          # neither sorted nor all of them in the data
WORDS = {"a": "awful poor dire", "b": "plain usual fine", "c": "great lovely superb"}
ODD = ("", "   ", "great " * 3000, "😀", "مرحبا רע", "\ud83d half a pair", "great\n\tlovely\x00", "unknownword")


class Findings:
    """What was found, each once with the case that it was first found in, and how often it was found at all."""

    def __init__(self, say: Callable[[str], None] = lambda line: None) -> None:
        self._found: Dict[str, List[str]] = {}
        self._say = say
        self._case = ""

    @property
    def lines(self) -> List[str]:
        return ["%s: %s%s" % (cases[0], what, " (%d times)" % len(cases) if len(cases) > 1 else "")
                for what, cases in self._found.items()]

    def case(self, name: str) -> None:
        self._case = name
        self._say(name)

    def add(self, what: str) -> None:
        self._found.setdefault(what, []).append(self._case)

    def expect(self, good: Any, what: str) -> None:
        if not good:
            self.add(what)


class Recorder(Handle):
    """A run that keeps what it is told; it stops at the check of that number, or asks to keep from it on."""

    def __init__(self, stop_at: Optional[int] = None, keep_at: Optional[int] = None) -> None:
        self.checks, self.asked = 0, 0
        self.stop_at, self.keep_at = stop_at, keep_at
        self.odd: List[str] = []

    def check(self) -> None:
        self.checks += 1
        if self.stop_at is not None and self.checks >= self.stop_at:
            raise Cancelled()

    def keep_wanted(self) -> bool:
        self.check()
        self.asked += 1
        return self.keep_at is not None and self.asked > self.keep_at

    def progress(self, phase: str, current: float, total: Optional[float] = None,
                 eta_s: Optional[float] = None) -> None:
        if not isinstance(phase, str) or not _number(current) or not (total is None or _number(total)):
            self.odd.append("progress(%r, %r, %r)" % (phase, current, total))
        elif total is not None and current > total:
            self.odd.append("progress of %s: %r of %r" % (phase, current, total))

    def metric(self, split: str, name: str, value: float, step: Optional[int] = None) -> None:
        if split not in ("train", "val", "test") or not isinstance(name, str) or not _number(value):
            self.odd.append("metric(%r, %r, %r)" % (split, name, value))


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) or hasattr(value, "item")


class Data(NamedTuple):
    """Items to learn from and to predict."""

    train: List[Example]
    val: List[Example]
    rows: List[Row]


def make_data(kind: str, train: int = 45, val: int = 12) -> Data:
    """Items whose words give the label away, and odd ones to predict."""
    rng = random.Random(7)  # noqa: S311
    known = [k for k, label in enumerate(LABELS) if label in WORDS]

    def example(prefix: str, n: int) -> Example:
        k = known[n % len(known)]
        words = rng.sample(WORDS[LABELS[k]].split(), 2)
        target: Any = k
        if kind == "multilabel":
            other = known[(n + n // 3) % len(known)]
            words += WORDS[LABELS[other]].split()[:1]
            target = tuple(sorted({k, other}))
        return Example("%s%d" % (prefix, n), "it was %s" % " and ".join(words), target)
    made = [[example(prefix, n) for n in range(count)] for prefix, count in (("t", train), ("v", val))]
    rows = [Row("v%d" % n, e.text, {}) for n, e in enumerate(made[1])]
    rows += [Row("o%d" % n, text, {}) for n, text in enumerate(ODD)]
    return Data(made[0], made[1], rows)


class Bench:
    """One trainer on the bench, in a directory of its own."""

    def __init__(self, cls: Type[Trainer], params: Mapping[str, Any], directory: str, findings: Findings) -> None:
        self.cls, self.params, self.directory, self.findings = cls, params, directory, findings
        self._count = 0

    def folder(self) -> str:
        self._count += 1
        path = os.path.join(self.directory, str(self._count))
        os.mkdir(path)
        return path

    def trainer(self, kind: str, data: Data, run: Optional[Handle] = None) -> Trainer:
        scratch = self.folder()
        earlier = os.path.join(scratch, "earlier.jsonl")
        with open(earlier, "w", encoding="utf-8") as f:
            for item in [*(e.id for e in data.train), *(r.id for r in data.rows)]:
                row = {"instance_id": item, "schema_name": "s", "scores": _guess(kind, item)}
                f.write(json.dumps(row) + "\n")
        return self.cls(Task("s", kind, LABELS, self.params, 3, os.path.join(scratch, "scratch"), earlier), run)

    def fitted(self, kind: str, data: Data, run: Optional[Handle] = None) -> Trainer:
        trainer = self.trainer(kind, data, run)
        trainer.fit(data.train, data.val)
        return trainer

    def scores(self, trainer: Trainer, kind: str, rows: Sequence[Row]) -> List[List[float]]:
        """The predictions, looked at."""
        found = [None if row is None else [float(p) for p in row] for row in trainer.predict_rows(rows)]
        expect = self.findings.expect
        expect(len(found) == len(rows), "%d rows of scores for %d items" % (len(found), len(rows)))
        given = [row for row in found if row is not None]
        expect(all(len(row) == len(LABELS) for row in given), "a row has not one score for each label")
        expect(all(math.isfinite(p) and -1e-6 <= p <= 1 + 1e-6 for row in given for p in row),
               "a score is no probability")
        if kind != "multilabel":
            expect(all(abs(sum(row) - 1) < 1e-3 for row in given), "the probabilities of an item do not sum to 1")
        return given


def _guess(kind: str, item: str) -> Dict[str, float]:
    rng = random.Random(item)  # noqa: S311
    values = [rng.random() + 0.05 for _ in LABELS]
    total = max(values) * 1.01 if kind == "multilabel" else sum(values)
    return {label: v / total for label, v in zip(LABELS, values)}
