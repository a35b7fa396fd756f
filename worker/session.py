"""One run in the worker: prepare, train each scheme, evaluate and predict with the saved models, report."""

from __future__ import annotations

import gc
import math
import os
import sys
import traceback
from importlib.util import find_spec
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Type,
)

from . import device, files, protocol
from .bundle import Bundle, examples
from .control import Control, block_signals, take_stdin
from .ending import Ending
from .events import EventWriter, take_stdout
from .failures import BadSpec, Cancelled, TrainerError, explain, not_imported, quoted
from .finished import Finished
from .handle import RunHandle
from .predictions import PredictionsFile
from .spec import check_params, read_spec
from .trainers import load
from .trainers.base import Task

if TYPE_CHECKING:
    from .bundle import Example, Row
    from .failures import WorkerError
    from .spec import SchemaSpec, Spec
    from .trainers.base import Trainer

SPARE_FILE = ".spare"
CHUNK = 1024            # items that are predicted at a time: bounds the memory for a million of them


def main(spec_path: str, exit_code_file: Optional[str] = None) -> NoReturn:
    """Runs the spec at the path and ends the process with its exit code; never returns."""
    # Importing torch and transformers makes millions of objects that all stay: with Python's own
    # thresholds the collector looks through them thousands of times, half a second of the start.
    gc.set_threshold(50_000, 20, 100)
    os.umask(0o077)
    block_signals()
    events = EventWriter(take_stdout())
    ending = Ending(events, exit_code_file)
    control = Control(ending)
    control.watch_signals()
    stdin = take_stdin()
    session = Session(events, ending, control)
    try:
        session.prepare(spec_path, stdin)
        session.run()
    except Cancelled:
        ending.cancelled(control.stopping)
    except BaseException as error:
        if control.stopping is not None:        # whatever broke, broke while stopping
            ending.cancelled(control.stopping)
        traceback.print_exc(file=sys.stderr)
        reason = session.explain(error)
        if hasattr(session, "finished"):
            session.finished.forget()       # it would fail the same way again
        ending.failed(reason)


class Session:
    """The steps of one run, in order. Everything they need of each other is kept here."""

    spec: Spec                      # these two once ``prepare`` has them
    trainer: Type[Trainer]

    def __init__(self, events: EventWriter, ending: Ending, control: Control) -> None:
        self.events = events
        self.ending = ending
        self.control = control

    def explain(self, error: BaseException) -> WorkerError:
        trainer, spec = getattr(self, "trainer", None), getattr(self, "spec", None)
        hint = trainer.info.install_line(sys.executable) if trainer else ""
        if isinstance(error, SystemExit):
            return TrainerError("the trainer ended the process by itself (exit %s)" % error.code)
        return explain(error, spec.trainer if spec else None, hint, spec.workdir if spec else None)

    def prepare(self, spec_path: str, stdin: Optional[int]) -> None:
        """Reads and checks everything that can be wrong before any work is done."""
        self.spec = spec = read_spec(spec_path)
        # a job that Slurm requeued does its work again: another attempt, with the same spec
        restarts = os.environ.get("SLURM_RESTART_COUNT", "")
        self.events.attempt = spec.attempt + (int(restarts) if restarts.isdigit() else 0)
        self.control.grace = spec.grace_seconds
        if spec.orphan.stdin and stdin is not None:
            self.control.watch_stdin(stdin)
        self.control.watch_files(spec)
        device.set_threads(spec.limits.num_threads)
        self.events.keep_spare(os.path.join(spec.workdir, SPARE_FILE))
        self.trainer = trainer = load(spec.trainer)
        self.control.saves = trainer.saves_when_stopped
        self.params = check_params(trainer.info.params_schema, spec.params)
        for schema in spec.schemas:
            if schema.kind not in trainer.info.kinds:
                raise BadSpec("trainer '%s' does not train %s schemes (%s)" % (spec.trainer, schema.kind, schema.name))
        self.bundle = Bundle(spec.bundle_dir, lambda text: self.events.log("warning", text))
        self.bundle.check(spec)
        self.handle = RunHandle(self.events, self.control, threads=device.threads(spec.limits.num_threads))
        self._announce(trainer)

    def _announce(self, trainer: Type[Trainer]) -> None:
        """The first event, before anything slow; a trainer with a device gives its own once torch has told it."""
        needed = trainer.needed(self.params)
        missing = [name for name in needed if not _installed(name)]
        facts = dict(device.here(), software=device.software(needed), threads=self.handle.threads, device="cpu", gpu=[])
        uses_gpu = trainer.info.uses_gpu and not missing
        if uses_gpu:
            facts["device"] = None
        self.events.emit("status", state=protocol.RUNNING, step="starting", **facts)
        if missing:
            raise not_imported(self.spec.trainer, "No module named '%s'" % missing[0],
                               trainer.info.install_line(sys.executable))
        if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
            self.events.log("info", "CUDA_VISIBLE_DEVICES=%s" % os.environ["CUDA_VISIBLE_DEVICES"])
        if uses_gpu:
            self.handle.device, facts["gpu"] = device.choose(self.spec.limits.device, self.handle.warn)
            facts["device"] = self.handle.device
            self.events.emit("status", state=protocol.RUNNING, step="starting", **facts)

    def run(self) -> NoReturn:
        """Trains, evaluates, predicts, and ends the process."""
        spec = self.spec
        self.directories = {name: "%s/%s" % (protocol.ARTIFACTS_DIR, plain)
                            for name, plain in files.directory_names([s.name for s in spec.schemas]).items()}
        self.finished = Finished(spec, self.directories, self.params, self.bundle.digest)
        self.finished.sweep()
        trained: Dict[str, Tuple[Optional[Trainer], str]] = {}
        for n, schema in enumerate(spec.schemas, 1):
            if trained and self.control.keep:
                self.handle.kept = True
                self.handle.prefix = ""
                self.handle.warn("stopped and kept before scheme '%s' was trained: it has no model" % schema.name)
                continue
            trained[schema.name] = self._train(schema, n)
        self.handle.prefix = ""
        scored = self._score([s for s in spec.schemas if s.name in trained], trained)
        self.handle.check()
        self.finished.forget()
        self.ending.succeeded(
            model_version={name: version for name, (_, version) in trained.items()},
            label_order={s.name: list(s.labels) for s in spec.schemas if s.name in trained},
            artifacts={name: self.directories[name] for name in trained},
            kept=self.handle.kept, **scored)

    def _train(self, schema: SchemaSpec, number: int) -> Tuple[Optional[Trainer], str]:
        """Trains and saves one scheme's model. -> (the trainer or None when it will be loaded again, model version)."""
        many = len(self.spec.schemas) > 1
        self.handle.prefix = "%s: " % schema.name if many else ""
        self.handle.check()
        self.events.emit("status", state=protocol.RUNNING, step="training '%s'%s" % (
            schema.name, " (%d of %d)" % (number, len(self.spec.schemas)) if many else ""))
        version = self.finished.version(schema.name)
        if version is not None:
            self.handle.log("this scheme was trained before the job was started again; its model is kept")
            return None, version
        train = self._usable(examples(self.bundle.rows("train"), schema, "train"), schema)
        val = examples(self.bundle.rows("val"), schema, "val")
        task = Task(schema.name, schema.kind, schema.labels, self.params, self.spec.seed,
                    self.finished.scratch(schema.name), self.spec.earlier)
        trainer = self.trainer(task, self.handle)
        trainer.fit(train, val)
        self.handle.check()
        version = self._save(trainer, schema)
        self.finished.note(schema.name, version)
        return (None if many and trainer.loads_to_predict else trainer), version

    def _usable(self, train: List[Example], schema: SchemaSpec) -> List[Example]:
        """The train items, less those without text. TrainerError when nothing can be learnt from them."""
        found = [e for e in train if e.text.strip()]
        if len(found) < len(train):
            self.handle.warn("%d of %d train items have no text; left out of training"
                             % (len(train) - len(found), len(train)))
        if not found:
            raise TrainerError("nothing to train on: no item of the train split has a label for '%s'" % schema.name,
                               "annotate more items; a small project may need a larger splits.train")
        targets = {e.target for e in found}
        if len(targets) == 1:           # multilabel as well: a set that all items have is not told from anything
            only = next(iter(targets))
            names = ", ".join(schema.labels[k] for k in (only if schema.kind == "multilabel" else (only,)))
            raise TrainerError("all %d annotations are %s; at least 2 labels are needed" % (len(found), quoted(names)),
                               "annotate items of another label")
        seen = {k for t in targets for k in (t if schema.kind == "multilabel" else (t,))}
        unseen = [label for k, label in enumerate(schema.labels) if k not in seen]
        if unseen:
            shown = ", ".join(map(quoted, unseen[:5])) + (", ..." if len(unseen) > 5 else "")
            self.handle.warn("%d of %d labels have no train items and cannot be learned: %s"
                             % (len(unseen), len(schema.labels), shown))
        return found

    def _save(self, trainer: Trainer, schema: SchemaSpec) -> str:
        """Writes the model and says so; -> its version, the digest of its files."""
        directory = os.path.join(self.spec.workdir, *self.directories[schema.name].split("/"))
        os.makedirs(directory)
        trainer.save(directory)
        files.write_json(os.path.join(directory, "potato.json"), {
            "v": 1, "trainer": self.spec.trainer, "schema": schema.name, "annotation_type": schema.annotation_type,
            "kind": schema.kind, "labels": list(schema.labels), "params": dict(self.params), "seed": self.spec.seed,
            "bundle": self.bundle.digest,
        })
        for name in files.list_files(directory):
            self.events.emit("artifact", path="%s/%s" % (self.directories[schema.name], name),
                             bytes=os.path.getsize(os.path.join(directory, name)))
        return files.digest_of_directory(directory)

    def _score(self, schemas: Sequence[SchemaSpec], trained: Mapping[str, Any]) -> Dict[str, Any]:
        """Scores the held-out items and writes the predictions. -> the result event's metrics and prediction fields.

        With several schemes each model comes from its saved files, so that one at a time is in
        memory and what is published is what the files say.
        """
        scores = {}
        self.events.emit("status", state=protocol.EVALUATING, step="scoring held-out items")
        with PredictionsFile(os.path.join(self.spec.workdir, protocol.PREDICTIONS_FILE)) as out:
            for schema in schemas:
                trainer = trained[schema.name][0]
                if trainer is None:
                    directory = os.path.join(self.spec.workdir, *self.directories[schema.name].split("/"))
                    trainer = self.trainer.load(directory, self.handle)
                scores[schema.name] = {split: self._held_out(trainer, schema, split, out) for split in ("val", "test")}
                if self.spec.include_unlabeled:
                    self._unlabeled(trainer, schema, out)
            self.handle.check()
            digest = out.finish()
        return {"metrics": scores, "n_predictions": out.count, "predictions_sha256": digest}

    def _held_out(self, trainer: Trainer, schema: SchemaSpec, split: str, out: PredictionsFile) -> Dict[str, Any]:
        rows, by_id = list(self.bundle.rows(split)), {}
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start:start + CHUNK]
            for row, row_scores in zip(chunk, self._predict(trainer, schema, chunk)):
                if row_scores is not None:
                    out.add(schema, split, row.id, row_scores)
                    by_id[row.id] = row_scores
            self.handle.progress("evaluate", start + len(chunk), len(rows))
        labelled = [e for e in examples(rows, schema, split) if e.id in by_id]
        found = trainer.evaluate(labelled, [by_id[e.id] for e in labelled])
        self._warn_of_one_answer(schema, split, found)
        for name in ("accuracy", "macro_f1", "ece"):
            if name in found:
                self.events.emit("metric", split=split, name=name, value=found[name], step=None, schema=schema.name)
        return found

    def _warn_of_one_answer(self, schema: SchemaSpec, split: str, scores: Mapping[str, Any]) -> None:
        """Says so when a model tells nothing apart: with one common label its accuracy may well be high."""
        cells = scores.get("confusion", {}).get("cells", ())
        answers = {guess for _, guess, _ in cells}
        if len(answers) == 1 and len({truth for truth, _, _ in cells}) > 1:
            self.handle.warn("'%s': the model answers all %d %s items with %s; it has learned nothing to tell the "
                             "labels apart by" % (schema.name, scores["n"], split,
                                                  quoted(schema.labels[answers.pop()])))

    def _unlabeled(self, trainer: Trainer, schema: SchemaSpec, out: PredictionsFile) -> None:
        total = self.bundle.size("unlabeled")
        self.events.emit("status", state=protocol.EVALUATING, step="predicting unlabeled items for '%s'" % schema.name)
        done = 0
        for chunk in _chunks(self.bundle.rows("unlabeled"), CHUNK):
            for row, row_scores in zip(chunk, self._predict(trainer, schema, chunk)):
                if row_scores is not None:
                    out.add(schema, "unlabeled", row.id, row_scores)
            done += len(chunk)
            self.handle.progress("predict", done, total)

    def _predict(self, trainer: Trainer, schema: SchemaSpec, rows: Sequence[Row]) -> List[Optional[List[float]]]:
        """The trainer's scores, checked: one probability per label, all finite; None where it has no prediction."""
        self.handle.check()
        scores = [None if row is None else [float(p) for p in row] for row in trainer.predict_rows(rows)]
        if len(scores) != len(rows) or any(row is not None and len(row) != len(schema.labels) for row in scores):
            raise TrainerError("the trainer gave %d rows of scores for %d items" % (len(scores), len(rows)))
        if not all(math.isfinite(p) for row in scores for p in row or ()):
            raise TrainerError("the model's scores for '%s' are not finite; nothing is published" % schema.name,
                               "lower the learning rate or use fp32")
        return scores


def _installed(name: str) -> bool:
    """Whether a package is there, without importing it (a file that only looks like one fails later, by name)."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _chunks(rows: Iterable[Row], size: int) -> Iterator[List[Row]]:
    chunk = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
