"""hf-text-classification: fine-tunes a transformers model to classify texts, whole or with LoRA adapters.

The loop is our own (hf_loop.py): batches of similar length, texts tokenised once, mixed precision
where the device has it, the best epoch by macro-F1 on the val items. The saved directory is an
ordinary model that ``transformers.pipeline("text-classification", directory)`` loads.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Tuple

from ..metrics import macro_f1
from . import hf_setup, hf_team
from .base import Task, TrainerInfo
from .hf_finetune import FineTuner

if TYPE_CHECKING:
    from ..bundle import Example
    from .base import Handle

HEAD_FILE = "head.json"

_NUMBER, _WHOLE = {"type": "number"}, {"type": "integer"}
PARAMS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "model": {"type": "string", "minLength": 1, "default": "sentence-transformers/all-MiniLM-L6-v2",
                  "description": "a name on huggingface.co, or a directory on the training machine; safetensors only"},
        "revision": hf_setup.REVISION,
        "epochs": {"type": ["integer", "null"], "minimum": 1, "maximum": 1000, "default": None,
                   "description": "passes over the train items; not given: 3 to 20, more for fewer items"},
        "learning_rate": dict(_NUMBER, exclusiveMinimum=0, default=5e-5, description="at its peak, after the warm-up"),
        "head_learning_rate": {"type": ["number", "null"], "exclusiveMinimum": 0, "default": None,
                               "description": "of the new classification head; not given: ten times learning_rate, "
                                              "but at most 0.001"},
        "batch_size": dict(_WHOLE, minimum=1, maximum=4096, default=16, description="items of one forward pass"),
        "max_length": dict(_WHOLE, minimum=8, maximum=100_000, default=256,
                           description="tokens of a text that are read"),
        "warmup_ratio": dict(_NUMBER, minimum=0, maximum=1, default=0.1,
                             description="share of the steps in which the learning rate grows"),
        "weight_decay": dict(_NUMBER, minimum=0, default=0.01, description="pull of the weights towards zero"),
        "lora": {"type": ["object", "null"], "default": None, "additionalProperties": False,
                 "description": "train small adapters instead of the whole model (needs peft); {} for the defaults",
                 "properties": hf_setup.LORA},
        "early_stopping": dict(_WHOLE, minimum=0, default=3,
                               description="epochs without a better one before it ends; 0 for never"),
        "precision": {"type": "string", "enum": ["auto", "fp32", "fp16", "bf16"], "default": "auto",
                      "description": "auto trains in what the device is quick in and predicts in fp32"},
        "class_weights": {"type": "boolean", "default": False,
                          "description": "weigh labels by the inverse of how often they occur"},
        "gradient_accumulation": dict(_WHOLE, minimum=1, default=1, description="batches of one step"),
        "checkpoint_minutes": hf_setup.CHECKPOINT_MINUTES,
        "processes": hf_team.PARAM,
    },
}


class HFTextClassification(FineTuner):
    info = TrainerInfo(
        name="hf-text-classification",
        title="Fine-tuned transformer",
        description="Any AutoModelForSequenceClassification, whole or with LoRA. Better than sklearn-text from some "
                    "hundred labels on; wants a GPU for more than a small model.",
        kinds=("nominal", "ordinal", "multilabel"),
        packages=("torch", "transformers", "safetensors", "peft"),
        install_hint='pip install "potato-training[train-text]"',
        params_schema=PARAMS,
        uses_gpu=True,
    )
    auto_epochs = (3, 20)

    @classmethod
    def needed(cls, params: Mapping[str, Any]) -> Tuple[str, ...]:
        return tuple(p for p in cls.info.packages if p != "peft" or params.get("lora") is not None)

    def tune(self, directory: str, train: Sequence[Example], held: Sequence[Example]) -> None:
        """Fine-tunes the whole model, or adapters in it."""
        from . import hf_model
        from .hf_batches import encode
        from .hf_loop import Loop
        from .hf_precision import Precision

        task, params, run = self.task, self.task.params, self.run
        self.tokenizer = hf_model.load_tokenizer(directory)
        model, new = hf_model.load_model(directory, self.tokenizer, task.labels, task.kind)
        run.check()
        self.max_length = hf_model.longest_input(model, self.tokenizer, params["max_length"])
        if self.max_length < params["max_length"]:
            run.log("max_length is %d: the model takes no more" % self.max_length)
        if params["lora"] is not None:
            model = hf_model.add_lora(model, params["lora"], new)
            trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
            run.log("LoRA: %d of %d weights are trained" % (trained, sum(p.numel() for p in model.parameters())))
        self.model = model.to(run.device)

        run.step("reading the texts")
        encoded = encode(self.tokenizer, [e.text for e in train], self.max_length, run.check)
        self._warn_of_unknown(self.tokenizer, [row["input_ids"] for row in encoded.rows])
        targets = [e.target for e in train]
        self._val = encode(self.tokenizer, [e.text for e in held], self.max_length, run.check), [e.target for e in held]
        self._collate = self._collator(self.tokenizer)
        training = Precision(params["precision"], run.device, run.warn)
        self.precision = Precision("fp32" if params["precision"] == "auto" else training.name, run.device)
        epochs = self._ready(train, held, training.name)
        loop = Loop(self.model, run, params, task.kind, task.seed, self._collate, training,
                    self._class_weights(targets), self._judge, new,
                    self._checkpoints(directory, train, held), crew=self.crew)
        loop.train(encoded, self._tensor(targets), epochs)

    def _tensor(self, targets: Sequence[Any]) -> Any:
        """Targets as the loss wants them: indices, or rows of 0 and 1."""
        import torch

        if self.task.kind != "multilabel":
            return torch.tensor(targets, dtype=torch.long, device=self.run.device)
        rows = torch.zeros(len(targets), len(self.task.labels))
        for n, target in enumerate(targets):
            rows[n, list(target)] = 1.0
        return rows.to(self.run.device)

    def _class_weights(self, targets: Sequence[Any]) -> Any:
        """Weights by inverse frequency (a label that never occurs: 1), or None."""
        import torch

        if not self.task.params["class_weights"]:
            return None
        counts = [0] * len(self.task.labels)
        for target in targets:
            for k in target if self.task.kind == "multilabel" else (target,):
                counts[k] += 1
        if self.task.kind == "multilabel":
            weights = [min(100.0, (len(targets) - c) / c) if c else 1.0 for c in counts]
        else:
            seen = sum(1 for c in counts if c)
            weights = [len(targets) / (seen * c) if c else 1.0 for c in counts]
        return torch.tensor([max(w, 1e-3) for w in weights], device=self.run.device)

    def _judge(self) -> Optional[Tuple[float, float]]:
        """(macro-F1, loss) on the val items, or None without any."""
        from .hf_loop import losses
        from .hf_predict import predict_logits

        encoded, targets = self._val
        if not targets:
            return None
        logits = predict_logits(self.model, encoded, self._collate, self.precision, self.run)
        loss = losses(self.task.kind, logits, self._tensor(targets).cpu(), None).mean()
        return macro_f1(self.task.kind, self.task.labels, targets, self._probabilities(logits)), float(loss)

    def _probabilities(self, logits: Any) -> List[List[float]]:
        return (logits.sigmoid() if self.task.kind == "multilabel" else logits.softmax(dim=1)).tolist()

    def predict(self, texts: Sequence[str]) -> List[List[float]]:
        """Probabilities in label order, a list per text."""
        from .hf_batches import encode
        from .hf_predict import predict_logits

        if not texts:
            return []
        encoded = encode(self.tokenizer, texts, self.max_length, self.run.check)
        return self._probabilities(predict_logits(self.model, encoded, self._collate, self.precision, self.run))

    def save(self, directory: str) -> None:
        """The model as transformers writes it, and head.json with what else predicting needs."""
        from . import hf_model

        if hasattr(self.model, "peft_config"):
            self.run.log("the LoRA adapter with the trained head is in %s/" % hf_model.ADAPTER_DIR)
        self.tokenizer.model_max_length = self.max_length       # truncation=True then cuts where training did
        self.model = hf_model.save(self.model, self.tokenizer, directory, self.task.params["model"], self.commit)
        if hasattr(self.model, "peft_config"):
            self.run.warn("the base model is too large to be saved merged: the adapter needs %s to be loaded"
                          % self.task.params["model"])
        head = {"schema": self.task.name, "kind": self.task.kind, "labels": list(self.task.labels),
                "max_length": self.max_length, "precision": self.precision.name, "base": self.task.params["model"],
                "revision": self.commit}
        with open(os.path.join(directory, HEAD_FILE), "w", encoding="utf-8") as f:
            json.dump(head, f, ensure_ascii=False, indent=1)

    @classmethod
    def load(cls, directory: str, run: Optional[Handle] = None) -> HFTextClassification:
        """The trainer whose files are in the directory, ready to predict."""
        from . import hf_model
        from .hf_precision import Precision

        with open(os.path.join(directory, HEAD_FILE), encoding="utf-8") as f:
            head = json.load(f)
        trainer = cls(Task(head["schema"], head["kind"], tuple(head["labels"]), {"model": directory}), run)
        hf_setup.quiet(directory)
        model, trainer.tokenizer = hf_model.load_saved(directory, head["base"], head.get("revision"))
        device = trainer.run.device
        trainer.model = model.to(device)
        trainer.max_length = head["max_length"]
        trainer.precision = Precision(head["precision"], device)
        trainer._collate = trainer._collator(trainer.tokenizer)
        return trainer
