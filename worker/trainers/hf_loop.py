"""The training loop: accumulation, the out-of-memory ladder, non-finite losses, the best epoch."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

from ..failures import Cancelled, TrainerError, is_gpu_out_of_memory, is_host_out_of_memory
from . import hf_checkpoint
from .hf_batches import training_batches
from .hf_predict import release, too_large
from .hf_team import Solo

if TYPE_CHECKING:
    from .base import Handle
    from .hf_batches import Collator, Encoded
    from .hf_checkpoint import Checkpoints
    from .hf_precision import Precision

METRIC_INTERVAL_S = 1.0
CLIP_NORM = 1.0
HEAD_FASTER, HEAD_FASTEST = 10.0, 1e-3      # learning rate of new weights: times that of the others, at most


def losses(kind: str, logits: Any, targets: Any, weights: Any) -> Any:
    """The loss of each item, unreduced. ``targets`` are indices, or 0/1 rows for multilabel.

    Ordinal: cross entropy plus the squared distance between the cumulative distributions (Hou et
    al. 2016), so that a guess far along the scale costs more than a near one.
    """
    import torch
    from torch.nn import functional as F

    logits = logits.float()
    if kind == "multilabel":
        return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none").mean(dim=1)
    loss = F.cross_entropy(logits, targets, weight=weights, reduction="none")
    if kind == "ordinal":
        truth = F.one_hot(targets, logits.shape[1]).to(logits.dtype)
        distance = (torch.cumsum(logits.softmax(dim=1), dim=1) - torch.cumsum(truth, dim=1)) ** 2
        loss = loss + distance.sum(dim=1)
    return loss


def make_optimizer(model: Any, params: Mapping[str, Any], new_modules: Sequence[str]) -> Any:
    """AdamW over what is trained; no decay for biases and norms. Fused where this torch has it (a fifth less time).

    The modules that the checkpoint had no weights for (the head) learn faster: they start from
    nothing, and at the pace that suits the rest a few hundred steps do not get them anywhere (seen on
    770 items of 77 labels, 10 epochs at 1e-4: accuracy 0.72 with one pace, 0.81 with the head at ten).
    """
    import torch

    groups: Dict[Tuple[bool, bool], List[Any]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            new = any(("." + name).find("." + module + ".") >= 0 for module in new_modules)
            decayed = p.ndim >= 2 and not name.endswith("bias")
            groups.setdefault((new, decayed), []).append(p)
    pace = params["learning_rate"]
    head = params["head_learning_rate"] or max(pace, min(HEAD_FASTER * pace, HEAD_FASTEST))
    settings = [{"params": some, "lr": head if new else pace,
               "weight_decay": params["weight_decay"] if decayed else 0.0} for (new, decayed), some in groups.items()]
    try:
        return torch.optim.AdamW(settings, lr=pace, fused=True)
    except (RuntimeError, TypeError, ValueError):
        return torch.optim.AdamW(settings, lr=pace)


class Loop:
    """Trains ``model`` on encoded items; ``run`` is the trainer's handle.

    ``evaluate(model)`` gives (macro-F1, loss) on the held-out items, or None when there are too few.
    After ``train`` the model holds the weights of the best epoch. With ``checkpoints`` it goes on from
    the newest of them, and ends in the same weights as if it had never been interrupted. ``objective(inputs,
    items)`` gives the loss of each item where it is not that of a classifier. With a ``crew`` of several
    processes every one of them runs this loop, and they agree at each step.
    """

    def __init__(self, model: Any, run: Handle, params: Mapping[str, Any], kind: str, seed: int, collator: Collator,
                 precision: Precision, weights: Any = None,
                 evaluate: Optional[Callable[[], Optional[Tuple[float, float]]]] = None,
                 new: Sequence[str] = (), checkpoints: Optional[Checkpoints] = None,
                 objective: Optional[Callable[[Any, Sequence[int]], Any]] = None, crew: Optional[Solo] = None) -> None:
        self.model = model
        self.run = run
        self.params = params
        self.kind = kind
        self.seed = seed
        self.collate = collator
        self.precision = precision
        self.weights = weights
        self.new_modules = sorted({name.rsplit(".", 1)[0] for name in new})
        self.evaluate = evaluate or (lambda: None)
        self.at_once = params["batch_size"]     # items in one forward pass; the ladder halves it
        self.step = 0
        self.epoch, self.group = 1, 0           # what comes next: the epoch, and the optimizer step in it
        self.best: Any = None                   # (score, epoch, weights)
        self.checkpoints = checkpoints
        self.objective = objective
        self.crew = crew or Solo()
        self._told = 0.0

    def train(self, encoded: Encoded, targets: Any, epochs: int) -> None:
        """Runs the epochs, fewer with early stopping or when told to keep."""
        import torch

        params = self.params
        groups_per_epoch = math.ceil(math.ceil(len(targets) / params["batch_size"]) / params["gradient_accumulation"])
        self.total = groups_per_epoch * epochs
        self.warmup = params["warmup_ratio"] * self.total
        optimizer = make_optimizer(self.model, params, self.new_modules)
        self.paces = [group["lr"] for group in optimizer.param_groups]
        scaler = torch.amp.GradScaler("cuda") if self.precision.scales else None
        self._resume(optimizer, scaler)
        self._remember()
        try:
            return self._epochs(encoded, targets, epochs, optimizer, scaler)
        except Cancelled:
            # Preempted, perhaps, and to be started again: what takes too long to write is cut off, and is no loss.
            if self.checkpoints is not None and self.checkpoints.worth_it_at_the_end():
                for buffer, was in self._buffers:
                    buffer.copy_(was)
                self._save(optimizer, scaler)
            raise

    def _epochs(self, encoded: Encoded, targets: Any, epochs: int, optimizer: Any, scaler: Any) -> None:
        for epoch in range(self.epoch, epochs + 1):
            self.model.train()
            groups = self._groups(encoded.lengths, epoch)
            for number in range(self.group, len(groups)):
                if self.crew.tell([float(self.run.keep_wanted())])[0]:
                    return self._keep(epoch)
                self._one_step(encoded, targets, groups[number], optimizer, scaler)
                self.epoch, self.group = epoch, number + 1
                if self.checkpoints is not None:
                    self._remember()
                    if self.checkpoints.due():
                        self._save(optimizer, scaler)
            judged = self._judge(epoch)
            self.epoch, self.group = epoch + 1, 0
            if judged and self._enough(epoch):
                self.run.log("stopped early: no better epoch since epoch %d" % self.best[1])
                break
        return self._restore()

    def _pace(self, optimizer: Any) -> None:
        """Sets the learning rates of this step: up over the warm-up, then down to nothing."""
        n, warmup, total = self.step - 1, self.warmup, self.total
        factor = (n + 1) / (warmup + 1) if n < warmup else 1.0
        factor = min(factor, max(0.0, (total - n) / max(1.0, total - warmup)))
        for group, pace in zip(optimizer.param_groups, self.paces):
            group["lr"] = pace * factor

    def _remember(self) -> None:
        """What a step changes before it is whole."""
        self._random = hf_checkpoint.random_states(self.collate.device)
        self._buffers = [(b, b.clone()) for b in self.model.buffers()]

    def _save(self, optimizer: Any, scaler: Any) -> None:
        """A checkpoint as of the last whole step."""
        if self.crew.rank or self.checkpoints is None:
            return
        state, tensors = hf_checkpoint.collect(self.model, optimizer, scaler, self.best, self._random)
        state.update(step=self.step, epoch=self.epoch, group=self.group, at_once=self.at_once)
        self.checkpoints.save(self.step, state, tensors)

    def _resume(self, optimizer: Any, scaler: Any) -> None:
        found = self.checkpoints.latest() if self.checkpoints is not None else None
        if found is None:
            return
        self.best, random = hf_checkpoint.put_back(found, self.model, optimizer, scaler)
        if self.crew.rank == 0:
            hf_checkpoint.set_random(random, self.collate.device)
        self.step, self.epoch, self.group, self.at_once = (found[0][k] for k in ("step", "epoch", "group", "at_once"))

    def _groups(self, lengths: Sequence[int], epoch: int) -> List[List[List[int]]]:
        """An epoch as lists of item indices, one list for each optimizer step."""
        size = self.params["batch_size"]
        batches = training_batches(lengths, size, self.seed * 1000 + epoch)
        many = self.params["gradient_accumulation"]
        return [batches[n:n + many] for n in range(0, len(batches), many)]

    def _one_step(self, encoded: Encoded, targets: Any, group: List[List[int]], optimizer: Any, scaler: Any) -> None:
        import torch

        count = sum(map(len, group))
        loss = self._with_ladder(encoded, targets, group, count, optimizer, scaler)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        loss = self.crew.add_up(trained, loss)
        self.step += 1
        if not math.isfinite(loss):
            self._not_finite("loss", loss)
        self._pace(optimizer)
        if scaler:
            scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(trained, CLIP_NORM)
        if scaler:
            scaler.step(optimizer)      # leaves the step out by itself when the scaled gradients overflowed
            scaler.update()
        else:
            if not math.isfinite(float(norm)):
                self._not_finite("gradient", float(norm))
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.run.progress("fit", self.step, self.total)
        now = time.monotonic()
        if now - self._told >= METRIC_INTERVAL_S:
            self._told = now
            self.run.metric("train", "loss", loss, self.step)

    def _not_finite(self, what: str, value: float) -> NoReturn:
        self.run.metric("train", what, value, self.step)
        raise TrainerError("%s became %s at step %d; lower the learning rate or use fp32"
                           % (what, "NaN" if math.isnan(value) else "infinite", self.step),
                           self._suspects(), code="not_finite")

    def _suspects(self) -> str:
        """What a loss that is not finite may come from, as far as the step tells."""
        if self.step == 1:
            alpha = (self.params.get("lora") or {}).get("alpha")
            return ("nothing was learned before the first step: it comes from the model's own weights, or the "
                    "precision (%s)%s" % (self.precision.name, ", or lora.alpha (%g)" % alpha if alpha else ""))
        keys = ("learning_rate", "head_learning_rate", "weight_decay")
        used = ["%s is %g" % (k, self.params[k]) for k in keys if self.params.get(k)]
        return ", ".join([*used, "precision is %s" % self.precision.name])

    def _with_ladder(self, encoded: Encoded, targets: Any, group: List[List[int]], count: int, optimizer: Any,
                     scaler: Any) -> float:
        """Forward and backward of one group; halves what is computed at once each time memory is not enough."""
        while True:
            failed = None
            try:
                return self._accumulate(encoded, targets, group, count, scaler)
            except Exception as error:
                if not (is_gpu_out_of_memory(error) or is_host_out_of_memory(error)):
                    raise
                failed = is_gpu_out_of_memory(error)
            # Outside the handler: the exception's frames would keep the tensors alive.
            optimizer.zero_grad(set_to_none=True)
            release(self.collate.device)
            if self.at_once == 1:
                raise too_large(failed)
            before, self.at_once = self.at_once, max(1, self.at_once // 2)
            self.run.warn("out of memory with batches of %d items: going on with %d and twice the accumulation"
                          % (before, self.at_once))

    def _accumulate(self, encoded: Encoded, targets: Any, group: List[List[int]], count: int, scaler: Any) -> float:
        total: Any = 0.0
        for whole in group:
            batch = self.crew.share(whole)
            for start in range(0, len(batch), self.at_once):
                self.run.check()
                part = batch[start:start + self.at_once]
                inputs = self.collate(encoded, part)
                with self.precision.context():
                    found = self.objective(inputs, part) if self.objective else self.model(**inputs).logits
                each = found if self.objective else losses(self.kind, found, targets[part], self.weights)
                loss = each.sum() / count
                (scaler.scale(loss) if scaler else loss).backward()
                total = total + loss.detach()
        return float(total)             # one wait for the device at each step, which also finds a NaN at that step

    # --- the best epoch ---------------------------------------------------------------------

    def _judge(self, epoch: int) -> bool:
        """Evaluates; remembers the weights when they are the best so far. False when there is nothing to judge by."""
        found = self.evaluate() if self.crew.rank == 0 else None
        self._evaluated = self.step
        there, score, loss = self.crew.tell([1.0, *found] if found else [0.0, 0.0, 0.0])
        if not there:
            return False
        self.run.metric("val", "macro_f1", score, epoch)
        self.run.metric("val", "loss", loss, epoch)
        if self.best is None or (score, -loss) > self.best[0]:
            weights = self.model.state_dict() if self.crew.rank == 0 else {}
            state = {n: weights[n].detach().to("cpu", copy=True) for n in hf_checkpoint.trained_names(self.model)
                     if n in weights}
            self.best = ((score, -loss), epoch, state)
        return True

    def _enough(self, epoch: int) -> bool:
        patience = self.params["early_stopping"]
        return bool(patience) and epoch - self.best[1] >= patience

    def _keep(self, epoch: int) -> None:
        if self.step == 0:
            raise TrainerError("stopped and kept before the first step: there is no model to keep",
                               "let it train a while first")
        self.run.log("stopped and kept at step %d of %d" % (self.step, self.total))
        if getattr(self, "_evaluated", None) != self.step:
            self._judge(epoch)
        return self._restore()

    def _restore(self) -> None:
        if self.best is None:
            return None
        self.model.load_state_dict(self.best[2], strict=False)
        self.run.log("the best epoch is %d, macro-F1 %.4f on the val items" % (self.best[1], self.best[0][0]))
        return self.best[1]
