"""A trainer of one's own: an item gets the labels of the train items that share most words with it."""

import json
import math
import re
from collections import Counter
from pathlib import Path

from potato_training.worker.trainers.base import Task, Trainer, TrainerInfo

MODEL_FILE = "neighbours.json"
CHUNK = 200


class NearestWords(Trainer):
    info = TrainerInfo(
        name="nearest-words",
        title="Nearest neighbours by words",
        description="The labels of the train items that share most words. Slow beyond some thousand items.",
        kinds=("nominal", "ordinal", "multilabel"),
        packages=(),                # import names of what it needs: checked before anything is started
        install_hint="pip install potato-nearest-words",
        params_schema={
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "neighbours": {"type": "integer", "minimum": 1, "default": 5,
                               "description": "train items that have a say"},
            },
        },
    )

    def fit(self, train, val):
        """``train`` are Examples: id, text, target (a label's index; for multilabel a tuple of them)."""
        self.run.step("counting words")
        found = Counter(word for example in train for word in set(words(example.text)))
        self.weights = {word: math.log(1 + len(train) / n) for word, n in found.items()}
        self.targets = [example.target for example in train]
        self.train = []
        for n, example in enumerate(train):
            if n % CHUNK == 0:
                self.run.check()                    # raises when the run is cancelled
                self.run.progress("fit", n, len(train))
            self.train.append(self.vector(example.text))

    def vector(self, text):
        """The text's words with their weights, of length 1; empty for a text without known words."""
        vector = {word: self.weights[word] for word in sorted(set(words(text))) if word in self.weights}
        length = math.sqrt(sum(w * w for w in vector.values()))
        return {word: w / length for word, w in vector.items()} if length else {}

    def predict(self, texts):
        """A row of probabilities for each text, in label order."""
        rows = []
        for n, text in enumerate(texts):
            if n % CHUNK == 0:
                self.run.check()
            rows.append(self.row(self.vector(text)))
        return rows

    def row(self, vector):
        alike = sorted(((sum(w * other.get(word, 0.0) for word, w in vector.items()), -n)
                        for n, other in enumerate(self.train)), reverse=True)
        votes, total = [1e-3] * len(self.task.labels), 1e-3 * len(self.task.labels)
        for likeness, n in alike[:self.task.params["neighbours"]]:
            target = self.targets[-n]
            for k in target if self.task.kind == "multilabel" else (target,):
                votes[k] += likeness
            total += likeness
        if self.task.kind == "multilabel":          # each label by itself
            return [min(1.0, vote / total) for vote in votes]
        return [vote / sum(votes) for vote in votes]

    def save(self, directory):
        """Any files but pickles."""
        saved = {"schema": self.task.name, "kind": self.task.kind, "labels": self.task.labels,
                 "neighbours": self.task.params["neighbours"], "weights": self.weights, "train": self.train,
                 "targets": self.targets}
        Path(directory, MODEL_FILE).write_text(json.dumps(saved), encoding="utf-8")

    @classmethod
    def load(cls, directory, run=None):
        saved = json.loads(Path(directory, MODEL_FILE).read_text(encoding="utf-8"))
        params = {"neighbours": saved["neighbours"]}
        trainer = cls(Task(saved["schema"], saved["kind"], tuple(saved["labels"]), params), run)
        trainer.weights, trainer.train = saved["weights"], saved["train"]
        trainer.targets = [tuple(t) if isinstance(t, list) else t for t in saved["targets"]]
        return trainer


def words(text):
    return re.findall(r"\w+", text.lower())
