"""sklearn-text: TF-IDF over words and characters, logistic regression, calibrated by cross-validation.

Nominal schemes get one multinomial model, multilabel schemes one binary model a label, ordinal
schemes one binary model for each step of the scale ("is it above this label?", Frank and Hall 2001),
so that a guess that is one step off costs less than one that is four.

The model is ``model.skops``, a mapping of plain scikit-learn objects that ``skops.io.load`` opens
without this package: {"features": FeatureUnion, "classifiers": [LogisticRegression, ...]}. No pickle.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any, List, Optional, Sequence

from ..failures import TrainerError
from .base import Task, Trainer, TrainerInfo
from .skops_file import import_skops, settle

if TYPE_CHECKING:
    from ..bundle import Example
    from .base import Handle

WORD = r"(?u)\b\w+\b"
MODEL_FILE = "model.skops"
#: Data, not code: what scikit-learn before 1.5 keeps idf in, and skops 0.10 does not trust by itself.
TRUSTED = ["scipy.sparse._csr.csr_matrix"]
HEAD_FILE = "head.json"
ENOUGH_TO_CALIBRATE = 25        # train items
MANY_WEIGHTS = 400_000          # features times labels above which one binary model a label is several times as fast
MANY_ITEMS = 5000               # train items from which one fold is enough to calibrate by
CHUNK = 2048

PARAMS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "word_ngrams": {"type": "integer", "minimum": 1, "maximum": 3, "default": 2,
                        "description": "longest run of words that is a feature"},
        "char_ngrams": {"type": "integer", "minimum": 0, "maximum": 6, "default": 5,
                        "description": "longest run of characters within words that is a feature; 0 for none"},
        "max_features": {"type": "integer", "minimum": 100, "maximum": 2_000_000, "default": 100_000,
                         "description": "most features of words, and of characters, each; the commonest are kept"},
        "min_items": {"type": "integer", "minimum": 1, "default": 1,
                      "description": "a feature counts when at least so many train items have it"},
        "C": {"type": "number", "exclusiveMinimum": 0, "default": 10.0,
              "description": "how closely to follow the train items (inverse of the regularisation)"},
        "class_weights": {"type": "boolean", "default": False,
                          "description": "weigh labels by the inverse of how often they occur"},
        "calibrate": {"type": "boolean", "default": True,
                      "description": "fit the confidence by cross-validation when there are items enough"},
    },
}


class SklearnText(Trainer):
    info = TrainerInfo(
        name="sklearn-text",
        title="TF-IDF and logistic regression",
        description="Quick, needs no GPU, and hard to beat below a few hundred labels. The one to start with.",
        kinds=("nominal", "ordinal", "multilabel"),
        packages=("numpy", "sklearn", "skops"),
        install_hint='pip install "potato-training[sklearn]"',
        params_schema=PARAMS,
    )

    def fit(self, train: Sequence[Example], val: Sequence[Example]) -> None:
        """Fits features, one model per column (see ``_columns``), and the temperature of their scores."""
        import numpy as np

        self.run.step("counting words")
        params, labels = self.task.params, self.task.labels
        self._features = self._make_features([e.text for e in train])
        x = self._features.transform([e.text for e in train])
        self.run.check()
        columns = _columns(self.task.kind, len(labels), [e.target for e in train])
        # A label that never occurs (or, multilabel, that every item has) is a constant, not a model.
        self._constant = {k: float(y[0]) for k, y in enumerate(columns) if len(set(y)) == 1}
        self._live = [k for k in range(len(columns)) if k not in self._constant]
        y = np.array([columns[k] for k in self._live], dtype=bool).reshape(len(self._live), len(train))
        self.run.step("fitting")
        self._unsettled = False
        self._classifiers = self._fit_columns(x, y, progress=True)
        if not all(np.isfinite(c.coef_).all() for c in self._classifiers):
            raise TrainerError("the weights are not finite: C (%g) is too large" % params["C"], "lower it")
        if self._unsettled:
            self.run.warn("the weights had not settled when fitting was ended; a lower C (it is %g) settles sooner"
                          % params["C"])
        self._temperature = 1.0
        if params["calibrate"] and len(train) >= ENOUGH_TO_CALIBRATE and self._live:
            self.run.step("calibrating")
            self._temperature = self._find_temperature(x, y)
            self.run.log("calibrated: scores are divided by %.3f" % self._temperature)
        elif params["calibrate"] and len(train) < ENOUGH_TO_CALIBRATE:
            self.run.warn("the confidence is not calibrated: there are fewer than %d train items"
                          % ENOUGH_TO_CALIBRATE)
        for c in self._classifiers:         # scores are linear, so the temperature can live in the weights
            c.coef_, c.intercept_ = c.coef_ / self._temperature, c.intercept_ / self._temperature

    def _make_features(self, texts: Sequence[str]) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import FeatureUnion

        params = self.task.params
        common = {"sublinear_tf": True, "max_features": params["max_features"], "min_df": params["min_items"]}
        # The usual pattern of words leaves out one-letter words, and with them all of Chinese or Thai.
        words = TfidfVectorizer(ngram_range=(1, params["word_ngrams"]), token_pattern=WORD, **common)
        parts = [("words", words)]
        if params["char_ngrams"]:
            longest = params["char_ngrams"]
            characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(min(2, longest), longest), **common)
            parts.append(("characters", characters))
        usable = []
        rare = " that are in %d of them (min_items)" % params["min_items"] if params["min_items"] > 1 else ""
        for name, part in parts:
            self.run.check()
            try:
                usable.append((name, part.fit(texts)))
            except ValueError:              # "empty vocabulary": punctuation or emoji only, or all too rare
                self.run.warn("no %s to learn from in the train items%s" % (name, rare))
        if not usable:
            raise TrainerError("the train items have no words or characters to learn from%s" % rare)
        return FeatureUnion(usable)

    def _fit_columns(self, x: Any, y: Any, progress: bool = False) -> List[Any]:
        """The classifiers for the live columns ``y`` (columns x items, bool): one multinomial, or one a column."""
        from sklearn.linear_model import LogisticRegression

        params = self.task.params
        weight = "balanced" if params["class_weights"] else None
        if self.task.kind == "nominal" and x.shape[1] * len(y) <= MANY_WEIGHTS:
            self.run.check()
            model = LogisticRegression(C=params["C"], class_weight=weight, max_iter=1000)
            return [self._noted(model.fit(x, y.argmax(0)))]
        models = []
        for k, column in enumerate(y):
            self.run.check()
            model = LogisticRegression(C=params["C"], class_weight=weight, solver="liblinear", dual=True, max_iter=2000,
                                       random_state=self.task.seed % 2**32)
            models.append(self._noted(model.fit(x, column)) if column.any() and not column.all() else None)
            if progress:
                self.run.progress("fit", k + 1, len(y))
        if self.task.kind != "nominal":
            return models
        return [_joined(models, x.shape[1])]

    def _noted(self, model: Any) -> Any:
        """The model; it is noted when it took all the iterations that it may."""
        self._unsettled = self._unsettled or int(model.n_iter_.max()) >= model.max_iter
        return model

    def _raw(self, x: Any, classifiers: Sequence[Any]) -> Any:
        """Scores before any squashing: items x live columns."""
        import numpy as np

        found = []
        for c in classifiers:
            if c is None:                   # a fold without one of the two sides: no opinion
                found.append(np.zeros((x.shape[0], 1)))
                continue
            z = c.decision_function(x)
            found.append(np.stack([-z / 2, z / 2], axis=1) if self.task.kind == "nominal" and z.ndim == 1
                         else z.reshape(x.shape[0], -1))
        return np.concatenate(found, axis=1) if found else np.zeros((x.shape[0], 0))

    def _find_temperature(self, x: Any, y: Any) -> float:
        """The number to divide scores by that makes held-out items most likely, by cross-validation."""
        import numpy as np
        from sklearn.model_selection import KFold

        raw, truth = [], []
        parts = list(KFold(5, shuffle=True, random_state=self.task.seed % 2**32).split(np.arange(x.shape[0])))
        if x.shape[0] > MANY_ITEMS:         # one number needs no more held-out items than one fold then has
            parts = parts[:1]
        for n, (inside, outside) in enumerate(parts, 1):
            self.run.check()
            # A label that is missing from the fold's train part says nothing about confidence.
            known = y[:, inside].any(1)
            if self.task.kind == "nominal":
                outside = outside[known[y[:, outside].argmax(0)]]
                if known.sum() < 2 or not len(outside):
                    continue
                z = np.full((len(outside), len(y)), -math.inf)
                z[:, known] = self._raw(x[outside], self._fit_columns(x[inside], y[known][:, inside]))
            else:
                z = self._raw(x[outside], self._fit_columns(x[inside], y[:, inside]))
            raw.append(z)
            truth.append(y[:, outside])
            self.run.progress("calibrate", n, len(parts))
        if not raw:
            return 1.0
        z, t = np.concatenate(raw), np.concatenate(truth, axis=1).T
        grid = np.concatenate([[1.0], np.exp(np.linspace(math.log(0.05), math.log(10.0), 200))])
        return float(grid[int(np.argmin([self._loss(z / g, t) for g in grid]))])

    def _loss(self, z: Any, truth: Any) -> float:
        """Mean negative log likelihood; the truth itself is believed to n / (n + 1) only, as in Platt (1999),
        or a few items that are all easy would make every later answer certain."""
        import numpy as np

        doubt = 1.0 / (len(z) + 1)
        if self.task.kind != "nominal":
            target = np.where(truth, 1.0 - doubt, doubt)
            return -float(np.mean(target * _log_sigmoid(z) + (1.0 - target) * _log_sigmoid(-z)))
        known = np.isfinite(z)
        top = z.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            log_p = np.where(known, z - top - np.log(np.exp(z - top).sum(axis=1, keepdims=True)), 0.0)
        others = known & ~truth
        return -float(np.mean((1.0 - doubt) * log_p[truth] + doubt * (log_p * others).sum(axis=1) / others.sum(axis=1)))

    def predict(self, texts: Sequence[str]) -> List[List[float]]:
        """Probabilities in label order, a list per text."""
        found = []
        for start in range(0, len(texts), CHUNK):
            self.run.check()
            x = self._features.transform(list(texts[start:start + CHUNK]))
            found.extend(self._probabilities(self._raw(x, self._classifiers)).tolist())
        return found

    def _probabilities(self, z: Any) -> Any:
        import numpy as np

        count = len(self.task.labels) - (self.task.kind == "ordinal")
        p = np.empty((len(z), count))
        for k, value in self._constant.items():
            p[:, k] = value
        p[:, self._live] = _softmax(z) if self.task.kind == "nominal" else _sigmoid(z)
        if self.task.kind != "ordinal":
            return p
        # p[:, k] is the chance of being above label k; it may not grow with k.
        above = np.minimum.accumulate(p, axis=1)
        edges = np.concatenate([np.ones((len(z), 1)), above, np.zeros((len(z), 1))], axis=1)
        return edges[:, :-1] - edges[:, 1:]

    def save(self, directory: str) -> None:
        """model.skops with fixed names and times inside (the same model is the same bytes), and head.json."""
        skops_io = import_skops()

        path = os.path.join(directory, MODEL_FILE)
        for _, part in self._features.transformer_list:
            vars(part).pop("_stop_words_id", None)      # scikit-learn remembers an address: no two runs have the same
        skops_io.dump({"features": self._features, "classifiers": self._classifiers}, path)
        settle(path)
        head = {"schema": self.task.name, "kind": self.task.kind, "labels": list(self.task.labels), "live": self._live,
                "constant": {str(k): v for k, v in self._constant.items()}, "temperature": self._temperature}
        with open(os.path.join(directory, HEAD_FILE), "w", encoding="utf-8") as f:
            json.dump(head, f, ensure_ascii=False, indent=1)

    @classmethod
    def load(cls, directory: str, run: Optional[Handle] = None) -> SklearnText:
        """The trainer whose files are in the directory. skops refuses types that are not scikit-learn's."""
        skops_io = import_skops()

        with open(os.path.join(directory, HEAD_FILE), encoding="utf-8") as f:
            head = json.load(f)
        model = skops_io.load(os.path.join(directory, MODEL_FILE), trusted=TRUSTED)
        trainer = cls(Task(head["schema"], head["kind"], tuple(head["labels"]), {}), run)
        trainer._features, trainer._classifiers = model["features"], model["classifiers"]
        trainer._live, trainer._temperature = head["live"], head["temperature"]
        trainer._constant = {int(k): v for k, v in head["constant"].items()}
        return trainer


def _columns(kind: str, count: int, targets: Sequence[Any]) -> List[List[int]]:
    """What is told apart, one list of 0 and 1 a column: each label, or for ordinal "above label k"."""
    if kind == "ordinal":
        return [[int(t > k) for t in targets] for k in range(count - 1)]
    if kind == "multilabel":
        return [[int(k in t) for t in targets] for k in range(count)]
    return [[int(t == k) for t in targets] for k in range(count)]


def _joined(models: Sequence[Any], width: int) -> Any:
    """One multiclass LogisticRegression out of one binary model a class (None: a class that a fold lacks)."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    joined = LogisticRegression()
    joined.classes_ = np.arange(len(models))
    joined.coef_ = np.stack([m.coef_[0] if m else np.zeros(width) for m in models])
    joined.intercept_ = np.array([m.intercept_[0] if m else -20.0 for m in models])
    joined.n_features_in_ = width
    joined.n_iter_ = np.array([0])
    return joined


def _sigmoid(z: Any) -> Any:
    import numpy as np

    return 0.5 * (1.0 + np.tanh(0.5 * z))


def _log_sigmoid(z: Any) -> Any:
    import numpy as np

    return -np.logaddexp(0.0, -z)


def _softmax(z: Any) -> Any:
    import numpy as np

    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
