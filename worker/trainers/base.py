"""What a trainer is: a class that fits, predicts, evaluates, saves and loads one scheme's model."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, Optional, Sequence, Tuple

from .. import metrics

if TYPE_CHECKING:
    from ..bundle import Example, Row


@dataclass(frozen=True)
class TrainerInfo:
    """A trainer as it is listed, without importing its libraries.

    ``packages`` are import names; ``params_schema`` is a JSON Schema object (type, default, bounds,
    description); ``backends`` None means all; ``uses_gpu`` says whether a device is chosen for it.
    """

    name: str
    title: str
    description: str
    kinds: Tuple[str, ...]
    packages: Tuple[str, ...]
    install_hint: str
    params_schema: Mapping[str, Any] = field(default_factory=dict)
    modalities: Tuple[str, ...] = ("text",)
    backends: Optional[Tuple[str, ...]] = None
    uses_gpu: bool = False

    def install_line(self, python: str) -> str:
        """The install hint for the interpreter that trains: the `pip` of whoever reads it is seldom that one's."""
        pip = self.install_hint.startswith("pip ")
        return "%s -m %s" % (shlex.quote(python), self.install_hint) if python and pip else self.install_hint


@dataclass(frozen=True)
class Task:
    """One scheme to learn: labels in the scheme's order, checked params with defaults, a seed, a scratch directory.

    What is in ``scratch`` is there again when the job is started once more; when the scheme is saved it is removed.
    Outside a run there is none.
    """

    name: str
    kind: str
    labels: Tuple[str, ...]
    params: Mapping[str, Any]
    seed: int = 0
    scratch: Optional[str] = None
    earlier: Optional[str] = None       #: an earlier run's predictions.jsonl, for a trainer that starts from one


class Handle:
    """What a trainer sees of its run. This one is for use outside a run: it says nothing and never stops."""

    device = "cpu"
    threads: Optional[int] = None

    def check(self) -> None:
        """Call it at every batch: raises Cancelled when the run is to stop."""

    def keep_wanted(self) -> bool:
        """Whether training should end now and keep the best model so far; asked at every batch of ``fit``."""
        return False

    def progress(self, phase: str, current: float, total: Optional[float] = None,
                 eta_s: Optional[float] = None) -> None:
        """How far ``phase`` is; as often as one likes, the stream is throttled."""

    def metric(self, split: str, name: str, value: float, step: Optional[int] = None) -> None:
        """One number of the training, e.g. ("train", "loss", 0.4, 120)."""

    def log(self, msg: str) -> None:
        """A line for the run's log."""

    def warn(self, msg: str) -> None:
        """A warning for the run's log."""

    def step(self, text: str) -> None:
        """What is happening now, in a few words."""


class Trainer:
    """One trainer for one scheme. A subclass sets ``info`` and writes fit, predict, save and load.

    The module of a subclass must import with the standard library alone; it imports its libraries
    where they are used. ``fit`` and ``predict`` call ``self.run.check()`` at every batch where they
    can; one that cannot is ended from outside within a second or so.
    """

    info: TrainerInfo
    saves_when_stopped = False      #: writes something worth having when cancelled, and so gets most of the grace
    loads_to_predict = True         #: with several schemes each model is predicted with as it was saved

    def __init__(self, task: Task, run: Optional[Handle] = None) -> None:
        self.task = task
        self.run = run or Handle()

    @classmethod
    def needed(cls, params: Mapping[str, Any]) -> Tuple[str, ...]:
        """The import names that this run needs, of ``info.packages``."""
        return cls.info.packages

    def fit(self, train: Sequence[Example], val: Sequence[Example]) -> None:
        """Learns from Examples (id, text, target); ``val`` may be empty. TrainerError when it cannot."""
        raise NotImplementedError

    def predict(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """For each text a list of probabilities in label order; for nominal and ordinal they sum to 1."""
        raise NotImplementedError

    def predict_rows(self, rows: Sequence[Row]) -> Iterable[Optional[Sequence[float]]]:
        """As ``predict``, for Rows (id, text, labels); None for one that there is no prediction for."""
        return self.predict([row.text for row in rows])

    def evaluate(self, examples: Sequence[Example], scores: Sequence[Sequence[float]]) -> Dict[str, Any]:
        """The metrics of Examples whose ``predict`` gave ``scores``."""
        return metrics.measure(self.task.kind, self.task.labels, [e.target for e in examples], scores)

    def save(self, directory: str) -> None:
        """Writes the model's files into an empty directory. No pickles."""
        raise NotImplementedError

    @classmethod
    def load(cls, directory: str, run: Optional[Handle] = None) -> Trainer:
        """A trainer that predicts as the one that saved the directory did."""
        raise NotImplementedError
