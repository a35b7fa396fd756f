"""llm-lora: adapts a causal language model with LoRA to answer with the label.

Training is on the answer's tokens alone. Prediction is constrained to the labels (llm_prompt.py has how), so it
always is one of them, with a probability. The loop, its batches by length, checkpoints and the memory ladder are
those of hf-text-classification.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

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
        "model": {"type": "string", "minLength": 1, "default": "Qwen/Qwen2.5-0.5B-Instruct",
                  "description": "a name on huggingface.co, or a directory on the training machine; safetensors only"},
        "revision": hf_setup.REVISION,
        "instruction": {"type": ["string", "null"], "minLength": 1, "default": None,
                        "description": "what is asked of each text; not given: which label fits, with the labels "
                                       "named while they are 60 at most"},
        "epochs": {"type": ["integer", "null"], "minimum": 1, "maximum": 1000, "default": None,
                   "description": "passes over the train items; not given: 2 to 10, more for fewer items"},
        "learning_rate": dict(_NUMBER, exclusiveMinimum=0, default=2e-4, description="at its peak, after the warm-up"),
        "batch_size": dict(_WHOLE, minimum=1, maximum=4096, default=8, description="items of one forward pass"),
        "max_length": dict(_WHOLE, minimum=16, maximum=100_000, default=512,
                           description="tokens of the question, the text and the label together"),
        "warmup_ratio": dict(_NUMBER, minimum=0, maximum=1, default=0.05,
                             description="share of the steps in which the learning rate grows"),
        "weight_decay": dict(_NUMBER, minimum=0, default=0.0, description="pull of the adapters towards zero"),
        "lora": {"type": "object", "default": {n: rule["default"] for n, rule in hf_setup.LORA.items()},
                 "additionalProperties": False, "description": "the adapters", "properties": hf_setup.LORA},
        "four_bit": {"type": "string", "enum": ["auto", "always", "never"], "default": "auto",
                     "description": "base weights in 4 bits; auto: where there are CUDA and bitsandbytes"},
        "gradient_checkpointing": {"type": "boolean", "default": False,
                                   "description": "less memory for a third more time"},
        "early_stopping": dict(_WHOLE, minimum=0, default=2,
                               description="epochs without a better one before it ends; 0 for never"),
        "precision": {"type": "string", "enum": ["auto", "fp32", "fp16", "bf16"], "default": "auto",
                      "description": "auto: what the device is quick in"},
        "gradient_accumulation": dict(_WHOLE, minimum=1, default=1, description="batches of one step"),
        "checkpoint_minutes": hf_setup.CHECKPOINT_MINUTES,
        "processes": hf_team.PARAM,
    },
}


class LLMLora(FineTuner):
    info = TrainerInfo(
        name="llm-lora",
        title="Language model with LoRA",
        description="A causal language model that answers with the label. For labels that take understanding, and "
                    "few of them; wants a GPU.",
        kinds=("nominal", "ordinal"),
        packages=("torch", "transformers", "safetensors", "peft"),
        install_hint='pip install "potato-training[train-llm]"',
        params_schema=PARAMS,
        uses_gpu=True,
    )
    auto_epochs = (2, 10)

    def tune(self, directory: str, train: Sequence[Example], held: Sequence[Example]) -> None:
        """Trains the adapters on the answers' tokens."""
        from . import hf_model, llm_model, llm_prompt
        from .hf_loop import Loop
        from .hf_precision import Precision

        task, params, run = self.task, self.task.params, self.run
        training = Precision(params["precision"], run.device, run.warn)
        four_bit = llm_model.in_four_bits(params["four_bit"], run.device)
        on_gpu = run.device.startswith("cuda")
        model = llm_model.load_base(directory, run.device, training.dtype if on_gpu else None, four_bit)
        run.check()
        self.model = llm_model.add_lora(model, params["lora"], four_bit, params["gradient_checkpointing"])
        trained = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        run.log("LoRA: %d weights are trained%s" % (trained, "; the base has 4 bits a weight" if four_bit else ""))
        # A base that is kept in half precision answers in it; one in float32 does so everywhere alike.
        self.precision = training if on_gpu or params["precision"] != "auto" else Precision("fp32", run.device)
        tokenizer = hf_model.load_tokenizer(directory)
        question = llm_prompt.make_question(tokenizer, task.name, task.labels, params["instruction"])
        longest = hf_model.longest_input(model, tokenizer, params["max_length"])
        if longest < params["max_length"]:
            run.log("max_length is %d: the model takes no more" % longest)
        self._settle(tokenizer, question, question.room(longest, longest < params["max_length"]))

        run.step("reading the texts")
        targets = [e.target for e in train]
        endings = [question.answers[k] for k in targets]
        texts = llm_prompt.read_texts(tokenizer, [e.text for e in train], self.room, run.check)
        self._warn_of_unknown(tokenizer, texts)
        self._val = (llm_prompt.read_texts(tokenizer, [e.text for e in held], self.room, run.check),
                     [e.target for e in held])
        epochs = self._ready(train, held, training.name)

        def objective(inputs: Any, part: Sequence[int]) -> Any:
            return llm_model.answer_losses(self.asker, inputs, [endings[n] for n in part])
        loop = Loop(self.model, run, dict(params, head_learning_rate=None), task.kind, task.seed, self._collate,
                    training, evaluate=self._judge, objective=objective,
                    checkpoints=self._checkpoints(directory, train, held), crew=self.crew)
        loop.train(llm_prompt.rows(question, texts, endings), targets, epochs)

    def _settle(self, tokenizer: Any, question: Any, room: int) -> None:
        """What training and prediction need of model, tokenizer and question."""
        from .llm_model import Asker
        from .llm_prompt import Answers

        tokenizer.padding_side = "left"
        self.tokenizer, self.question, self.room = tokenizer, question, room
        self.answers = Answers(self.task.labels, question.answers)
        self.asker = Asker(self.model)
        self._collate = self._collator(tokenizer)
        if self._collate.pads["input_ids"] >= self.model.get_input_embeddings().weight.shape[0]:
            self._collate.pads["input_ids"] = 0     # masked: any token that the model knows will do

    def _judge(self) -> Optional[Tuple[float, float]]:
        """(macro-F1, loss) on the val items, or None without any."""
        import torch

        texts, targets = self._val
        if not targets:
            return None
        scores = self._log_chances(texts)
        loss = -scores.gather(1, torch.tensor(targets)[:, None]).mean()
        return macro_f1(self.task.kind, self.task.labels, targets, scores.exp().tolist()), float(loss)

    def _log_chances(self, texts: Sequence[Sequence[int]]) -> Any:
        """Log probabilities, texts by labels: a row for each text and way through the tree of answers, summed."""
        import torch

        from . import llm_model, llm_prompt
        from .hf_predict import predict_logits

        ways = self.answers.ways
        pairs = [(n, w) for n in range(len(texts)) for w in range(len(ways))]
        encoded = llm_prompt.rows(self.question, [texts[n] for n, _ in pairs], [ways[w][0] for _, w in pairs])

        def ask(inputs: Any, batch: Sequence[int]) -> Any:
            return llm_model.label_scores(self.asker, inputs, self.answers, [pairs[n][1] for n in batch])
        if not pairs:
            return torch.zeros(len(texts), len(self.task.labels))
        found = predict_logits(self.model, encoded, self._collate, self.precision, self.run, ask)
        return found.reshape(len(texts), len(ways), -1).sum(dim=1)

    def predict(self, texts: Sequence[str]) -> List[List[float]]:
        """Probabilities in label order, a list per text."""
        from .llm_prompt import read_texts

        scores: List[List[float]] = self._log_chances(
            read_texts(self.tokenizer, texts, self.room, self.run.check)).double().softmax(dim=1).tolist()
        return scores

    def save(self, directory: str) -> None:
        """The adapter as peft reads it, the tokenizer, and head.json with the question and the answers."""
        from . import llm_model

        base = self.task.params["model"]
        self.tokenizer.save_pretrained(directory)
        llm_model.save_adapter(self.model, directory, base, self.commit)
        head = {"schema": self.task.name, "kind": self.task.kind, "labels": list(self.task.labels), "base": base,
                "revision": self.commit, "room": self.room, "precision": self.precision.name,
                **self.question._asdict(),
                "prompt": self.tokenizer.decode([*self.question.before]) + "{text}"
                + self.tokenizer.decode([*self.question.after])}
        with open(os.path.join(directory, HEAD_FILE), "w", encoding="utf-8") as f:
            json.dump(head, f, ensure_ascii=False, indent=1)

    @classmethod
    def load(cls, directory: str, run: Optional[Handle] = None) -> LLMLora:
        """The trainer whose adapter is in the directory; the base model is found by its name."""
        from . import hf_model, llm_model
        from .hf_precision import Precision
        from .llm_prompt import Question

        with open(os.path.join(directory, HEAD_FILE), encoding="utf-8") as f:
            head = json.load(f)
        trainer = cls(Task(head["schema"], head["kind"], tuple(head["labels"]), {"model": head["base"]}), run)
        hf_setup.quiet(head["base"])
        device = trainer.run.device
        trainer.precision = Precision(head["precision"], device)
        dtype = trainer.precision.dtype if device.startswith("cuda") else None
        trainer.model = llm_model.load_adapter(directory, head["base"], head.get("revision"), device, dtype)
        question = Question(tuple(head["before"]), tuple(head["after"]), tuple(map(tuple, head["answers"])))
        trainer._settle(hf_model.load_tokenizer(directory), question, head["room"])
        return trainer
