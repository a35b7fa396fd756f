"""decision-calibrate: an earlier run's predictions, with confidences that people's later labels bear out.

No model is trained. The labels that people gave to items which the earlier run had predicted tell how often it
was right where it was how sure; a calibration is fitted to that, and kept only if it makes the calibration error
smaller on items that it was not fitted to. Runs where the earlier run's predictions are: on the server.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple

from .. import metrics
from ..failures import TrainerError, quoted
from . import calibration
from .base import Task, Trainer, TrainerInfo

if TYPE_CHECKING:
    from ..bundle import Example, Row
    from .base import Handle

CALIBRATION_FILE = "calibration.json"
FOLDS = 5
FEWEST_ITEMS = 10
MOST_ITEMS = 20_000         # a calibration knows all it can from so many

PARAMS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "run": {"type": ["string", "null"], "minLength": 1, "default": None,
                "description": "the run whose predictions are calibrated; not given: the last one that succeeded"},
        "wanted_precision": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.9,
                             "description": "each label gets the confidence from which on its predictions are right "
                                            "so often"},
    },
}
Pool = List[Tuple[str, List[float], Any]]


class DecisionCalibrate(Trainer):
    info = TrainerInfo(
        name="decision-calibrate",
        title="Calibrate an earlier run",
        description="Fits the confidence of an earlier run's predictions to the labels that people gave since, and "
                    "says from which confidence on a label can be trusted. Trains no model.",
        kinds=("nominal", "ordinal", "multilabel"),
        packages=(),
        install_hint="",
        params_schema=PARAMS,
        backends=("local",),
    )
    loads_to_predict = False

    def fit(self, train: Sequence[Example], val: Sequence[Example]) -> None:
        """Fits to the train and val items that the earlier run predicted; test items stay untouched."""
        if self.task.earlier is None:
            raise TrainerError("there are no earlier predictions to calibrate",
                               "decision-calibrate is started with potato training run, on the server's machine")
        self.run.step("reading the earlier predictions")
        self._open(self.task.earlier)
        pool: Pool = []
        for example in [*train, *val]:
            scores = self._earlier(example.id)
            if scores is not None:
                pool.append((example.id, scores, example.target))
        if len(pool) < FEWEST_ITEMS:
            raise TrainerError("%d items that the earlier run predicted have a label of '%s' by now; at least %d are "
                               "needed" % (len(pool), self.task.name, FEWEST_ITEMS),
                               "label some of the items that it predicted; with writeback.include_unlabeled a run "
                               "predicts them all")
        # In an order that has to do with nothing else.
        pool.sort(key=lambda item: hashlib.sha256(("%d %s" % (self.task.seed, item[0])).encode(
            "utf-8", "surrogatepass")).digest())
        self._calibrate(pool[:MOST_ITEMS])

    def _calibrate(self, pool: Pool) -> None:
        kind = self.task.kind
        method = calibration.method_for(len(pool))
        self.run.step("calibrating (%s)" % method)
        held_out: List[List[float]] = [[] for _ in pool]
        for fold in range(FOLDS):
            self.run.check()
            inside = [item for n, item in enumerate(pool) if n % FOLDS != fold]
            found = calibration.fit(method, kind, [p for _, p, _ in inside], [t for _, _, t in inside])
            for n in range(fold, len(pool), FOLDS):
                held_out[n] = calibration.apply(found, kind, pool[n][1])
            self.run.progress("calibrate", fold + 1, FOLDS)
        rows, targets = [p for _, p, _ in pool], [t for _, _, t in pool]
        before, after = (_error(kind, some, targets) for some in (rows, held_out))
        self.n = len(pool)
        self.errors = {"before": before, "after": after}
        if after < before:
            self.calibration = calibration.fit(method, kind, rows, targets)
            self.run.log("%s calibration on %d items: held-out calibration error %.4f, before %.4f (in "
                         "cross-validation; that of the val scores is on items that it was fitted to, and flatters it)"
                         % (method, len(pool), after, before))
        else:
            self.calibration, held_out = {"method": "none"}, rows
            self.run.warn("the confidences stay as they are: %s calibration on %d items would make the held-out "
                          "calibration error %.4f, and it is %.4f" % (method, len(pool), after, before))
        self.thresholds = {}
        wanted = self.task.params["wanted_precision"]
        for k, label in enumerate(self.task.labels):
            found_at = threshold(kind, k, held_out, targets, wanted)
            self.thresholds[label] = found_at
            if found_at is None:
                self.run.log("label %s: no confidence from which on %g %% are right" % (quoted(label), 100 * wanted))
            else:
                self.run.log("label %s: from confidence %.3f on %.1f %% of %d items are right "
                             "(95 %% sure: %.1f %% or more)"
                             % (quoted(label), found_at["confidence"], 100 * found_at["precision"], found_at["n"],
                                100 * surely(found_at["precision"], found_at["n"])))

    # --- the earlier predictions ----------------------------------------------------------------

    def _open(self, path: str) -> None:
        """Finds the scheme's rows in the file; only where they are is kept, so that a million cost little."""
        self._index: Dict[str, int] = {}
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 - read from until the process ends
        except OSError as error:
            raise TrainerError("the earlier predictions cannot be read: %s" % (error.strerror or error),
                               "its run may have been removed since; name another with --param run=RUN") from error
        at = 0
        for n, line in enumerate(self._file):
            if n % 5000 == 0:
                self.run.check()
            row = _row(line)
            if row.get("schema_name") == self.task.name and isinstance(row.get("instance_id"), str):
                self._index[row["instance_id"]] = at
            at += len(line)
        if not self._index:
            raise TrainerError("the earlier run predicted nothing for '%s'" % self.task.name)

    def _earlier(self, item: str) -> Optional[List[float]]:
        """The probabilities that the earlier run gave an item, in label order; None when it gave none."""
        at = self._index.get(item)
        if at is None:
            return None
        self._file.seek(at)
        told = _row(self._file.readline()).get("scores")
        if not isinstance(told, dict):
            return None
        told = {label: p for label, p in told.items() if isinstance(p, (int, float)) and 0 <= p <= 1}
        if not any(label in told for label in self.task.labels):
            return None
        # Only the likeliest are told: the others share what is left.
        missing = [label for label in self.task.labels if label not in told]
        rest = 0.0 if self.task.kind == "multilabel" else max(0.0, 1.0 - sum(told.values()))
        share = rest / len(missing) if missing else 0.0
        row = [float(told.get(label, share)) for label in self.task.labels]
        total = sum(row)
        if self.task.kind == "multilabel" or total <= 0:
            return row
        return [p / total for p in row]

    def predict_rows(self, rows: Sequence[Row]) -> Iterator[Optional[List[float]]]:
        """The earlier predictions, calibrated; None for an item that the earlier run did not predict."""
        for row in rows:
            self.run.check()
            scores = self._earlier(row.id)
            yield None if scores is None else calibration.apply(self.calibration, self.task.kind, scores)

    def evaluate(self, examples: Sequence[Example], scores: Sequence[Sequence[float]]) -> Dict[str, Any]:
        """The metrics; a calibration that does not hold on items that it was not fitted to is told of."""
        found = super().evaluate(examples, scores)
        earlier = [self._earlier(e.id) for e in examples]
        if self.calibration["method"] != "none" and "ece" in found and None not in earlier:
            rows, targets = [row for row in earlier if row], [e.target for e in examples]
            before = _error(self.task.kind, rows, targets)
            # Of some tens of items the calibration error goes up and down by itself: both must say so.
            if found["ece"] > before and _worse(rows, scores, targets):
                self.run.warn("'%s': on %d held-out items the calibration error is %.4f, and it was %.4f "
                              "before: the new confidences may be worse than the old (they were fitted to %d items)"
                              % (self.task.name, len(examples), found["ece"], before, self.n))
        return found

    def predict(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise TrainerError("decision-calibrate has no model: it knows the items that an earlier run predicted")

    def save(self, directory: str) -> None:
        """calibration.json: the calibration and the thresholds."""
        with open(os.path.join(directory, CALIBRATION_FILE), "w", encoding="utf-8") as f:
            json.dump({"v": 1, "schema": self.task.name, "kind": self.task.kind, "labels": list(self.task.labels),
                       "run": self.task.params["run"], "n": self.n, "calibration_error": self.errors,
                       "calibration": self.calibration, "wanted_precision": self.task.params["wanted_precision"],
                       "thresholds": self.thresholds}, f, ensure_ascii=False, indent=1)

    @classmethod
    def load(cls, directory: str, run: Optional[Handle] = None) -> DecisionCalibrate:
        """One with the calibration and the thresholds; ``calibrate`` is what it can do."""
        with open(os.path.join(directory, CALIBRATION_FILE), encoding="utf-8") as f:
            saved = json.load(f)
        params = {"run": saved["run"], "wanted_precision": saved["wanted_precision"]}
        trainer = cls(Task(saved["schema"], saved["kind"], tuple(saved["labels"]), params), run)
        trainer.calibration, trainer.thresholds = saved["calibration"], saved["thresholds"]
        trainer.n, trainer.errors = saved["n"], saved["calibration_error"]
        return trainer

    def calibrate(self, scores: Sequence[Sequence[float]]) -> List[List[float]]:
        """Rows of probabilities, calibrated."""
        return [calibration.apply(self.calibration, self.task.kind, row) for row in scores]


def _row(line: bytes) -> Dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _error(kind: str, rows: Sequence[Sequence[float]], targets: Sequence[Any]) -> float:
    """Expected calibration error, as the held-out scores have it."""
    if kind == "multilabel":
        pairs = [(p, k in t) for row, t in zip(rows, targets) for k, p in enumerate(row)]
    else:
        chosen = [metrics.choose(kind, row) for row in rows]
        pairs = [(p, guess == t) for (guess, p), t in zip(chosen, targets)]
    return metrics.calibration_error([p for p, _ in pairs], [hit for _, hit in pairs])


def _worse(old: Sequence[Sequence[float]], new: Sequence[Sequence[float]], targets: Sequence[Any]) -> bool:
    """Whether probabilities are further from what was true (Brier score) by more than the standard error of that."""
    def brier(row: Sequence[float], target: Any) -> float:
        true = target if isinstance(target, tuple) else (target,)
        return sum((p - (k in true)) ** 2 for k, p in enumerate(row))
    lost = [brier(b, t) - brier(a, t) for a, b, t in zip(old, new, targets)]
    mean = sum(lost) / len(lost)
    spread = math.sqrt(sum((d - mean) ** 2 for d in lost) / max(1, len(lost) - 1))
    return mean > spread / math.sqrt(len(lost))


def threshold(kind: str, k: int, rows: Sequence[Sequence[float]], targets: Sequence[Any],
              wanted: float) -> Optional[Dict[str, Any]]:
    """The lowest confidence from which on label ``k``'s predictions are right often enough, over at least five."""
    said = []
    for row, target in zip(rows, targets):
        guess, _ = metrics.choose(kind, row)
        if k in guess if kind == "multilabel" else k == guess:
            said.append((row[k], k in target if kind == "multilabel" else k == target))
    said.sort(reverse=True)
    found, right = None, 0
    for n, (p, hit) in enumerate(said, 1):
        right += hit
        last_of_its_kind = n == len(said) or said[n][0] < p
        if last_of_its_kind and n >= metrics.ENOUGH and right / n >= wanted:
            found = {"confidence": p, "precision": right / n, "n": n}
    return found


def surely(precision: float, n: int) -> float:
    """How often predictions are right with 95 % certainty, when that share of n was: the exact one-sided bound."""
    right = round(precision * n)
    ways = [(i, math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)) for i in range(right, n + 1)]
    low, high = 0.0, precision
    for _ in range(20):
        p = (low + high) / 2
        if p <= 0:
            break
        if sum(math.exp(way + i * math.log(p) + (n - i) * math.log1p(-p)) for i, way in ways) < 0.05:
            low = p
        else:
            high = p
    return low
