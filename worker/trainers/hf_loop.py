"""The training loop: precision, accumulation, the out-of-memory ladder, non-finite losses, the best epoch."""

import contextlib
import math
import time

from ..failures import OutOfMemory, TrainerError, is_gpu_out_of_memory, is_host_out_of_memory
from .hf_batches import prediction_batches, training_batches

METRIC_INTERVAL_S = 1.0
CPU_TOKENS, GPU_TOKENS = 2048, 32768        # padded tokens of a batch that only predicts
BF16_GAIN = 1.5         # on a CPU; well above what the trial's noise could make of equal speeds
CLIP_NORM = 1.0
HEAD_FASTER, HEAD_FASTEST = 10.0, 1e-3      # learning rate of new weights: times that of the others, at most


class Precision:
    """What numbers are computed in: "fp32", "bf16" or "fp16"; ``wanted`` may be "auto"."""

    def __init__(self, wanted, device, warn=lambda text: None):
        import torch

        self.kind = torch.device(device).type
        self.name = self._decide(wanted, warn)
        self.dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.name]
        self.scales = self.name == "fp16" and self.kind == "cuda"

    def _decide(self, wanted, warn):
        import torch

        if self.kind == "cuda":
            if wanted == "auto":
                # is_bf16_supported() also counts emulation, which is slower than fp16 on older cards.
                return "bf16" if torch.cuda.get_device_capability()[0] >= 8 else "fp16"
            return wanted
        if wanted == "fp16":
            wanted = "auto"
            warn("fp16 is for CUDA; choosing another precision")
        if wanted == "auto":
            return "bf16" if self.kind == "cpu" and cpu_is_quick_in_bf16() else "fp32"
        return wanted

    def context(self):
        """Autocast, or nothing for fp32."""
        import torch

        return torch.autocast(self.kind, dtype=self.dtype) if self.dtype is not None else contextlib.nullcontext()


def cpu_is_quick_in_bf16():
    """Whether the processor multiplies bf16 much faster than fp32: it has the instructions, and a trial shows it.

    The flags alone do not tell: of two machines with AVX512-BF16 and without AMX one was 2.2 times as
    fast in bf16 and the other 0.6 times.
    """
    import torch

    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            flags = next((line for line in f if line.startswith("flags")), "")
    except OSError:
        return False
    if "avx512_bf16" not in flags and "amx_bf16" not in flags:
        return False
    spent = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.ones(512, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
        spent[dtype] = min(_cpu_seconds(lambda a=a, b=b: a @ b) for _ in range(7))
    return spent[torch.float32] > BF16_GAIN * spent[torch.bfloat16]


def _cpu_seconds(work):
    began = time.process_time()
    work()
    return time.process_time() - began


def losses(kind, logits, targets, weights):
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


def make_optimizer(model, params, new_modules):
    """AdamW over what is trained; no decay for biases and norms. Fused where this torch has it (a fifth less time).

    The modules that the checkpoint had no weights for (the head) learn faster: they start from
    nothing, and at the pace that suits the rest a few hundred steps do not get them anywhere (seen on
    770 items of 77 labels, 10 epochs at 1e-4: accuracy 0.72 with one pace, 0.81 with the head at ten).
    """
    import torch

    groups = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            new = any(("." + name).find("." + module + ".") >= 0 for module in new_modules)
            decayed = p.ndim >= 2 and not name.endswith("bias")
            groups.setdefault((new, decayed), []).append(p)
    pace = params["learning_rate"]
    head = params["head_learning_rate"] or max(pace, min(HEAD_FASTER * pace, HEAD_FASTEST))
    groups = [{"params": some, "lr": head if new else pace,
               "weight_decay": params["weight_decay"] if decayed else 0.0} for (new, decayed), some in groups.items()]
    try:
        return torch.optim.AdamW(groups, lr=pace, fused=True)
    except (RuntimeError, TypeError, ValueError):
        return torch.optim.AdamW(groups, lr=pace)


class Loop:
    """Trains ``model`` on encoded items; ``run`` is the trainer's handle.

    ``evaluate(model)`` gives (macro-F1, loss) on the held-out items, or None when there are too few.
    After ``train`` the model holds the weights of the best epoch.
    """

    def __init__(self, model, run, params, kind, seed, collator, precision, weights=None, evaluate=None, new=()):
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
        self.best = None                        # (score, epoch, weights)
        self._told = 0.0

    def train(self, encoded, targets, epochs):
        """Runs the epochs, fewer with early stopping or when told to keep."""
        import torch

        params = self.params
        groups_per_epoch = math.ceil(math.ceil(len(targets) / params["batch_size"]) / params["gradient_accumulation"])
        self.total = groups_per_epoch * epochs
        warmup = params["warmup_ratio"] * self.total
        optimizer = make_optimizer(self.model, params, self.new_modules)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(
            (n + 1) / (warmup + 1) if n < warmup else 1.0, max(0.0, (self.total - n) / max(1.0, self.total - warmup))))
        scaler = torch.amp.GradScaler("cuda") if self.precision.scales else None
        for epoch in range(1, epochs + 1):
            self.model.train()
            for group in self._groups(encoded.lengths, epoch):
                if self.run.keep_wanted():
                    return self._keep(epoch)
                self._one_step(encoded, targets, group, optimizer, scaler)
                schedule.step()
            if self._judge(epoch) and self._enough(epoch):
                self.run.log("stopped early: no better epoch since epoch %d" % self.best[1])
                break
        return self._restore()

    def _groups(self, lengths, epoch):
        """An epoch as lists of item indices, one list for each optimizer step."""
        size = self.params["batch_size"]
        batches = training_batches(lengths, size, self.seed * 1000 + epoch)
        many = self.params["gradient_accumulation"]
        return [batches[n:n + many] for n in range(0, len(batches), many)]

    def _one_step(self, encoded, targets, group, optimizer, scaler):
        import torch

        count = sum(map(len, group))
        loss = self._with_ladder(encoded, targets, group, count, optimizer, scaler)
        self.step += 1
        if not math.isfinite(loss):
            self._not_finite("loss", loss)
        if scaler:
            scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.requires_grad], CLIP_NORM)
        if scaler:
            scaler.step(optimizer)      # leaves the step out by itself when the scaled gradients overflowed
            scaler.update()
        else:
            norm = float(norm)
            if not math.isfinite(norm):
                self._not_finite("gradient", norm)
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.run.progress("fit", self.step, self.total)
        now = time.monotonic()
        if now - self._told >= METRIC_INTERVAL_S:
            self._told = now
            self.run.metric("train", "loss", loss, self.step)

    def _not_finite(self, what, value):
        self.run.metric("train", what, value, self.step)
        raise TrainerError("%s became %s at step %d; lower the learning rate or use fp32"
                           % (what, "NaN" if math.isnan(value) else "infinite", self.step),
                           "learning_rate is %g, precision %s" % (self.params["learning_rate"], self.precision.name),
                           code="not_finite")

    def _with_ladder(self, encoded, targets, group, count, optimizer, scaler):
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

    def _accumulate(self, encoded, targets, group, count, scaler):
        total = 0.0
        for batch in group:
            for start in range(0, len(batch), self.at_once):
                self.run.check()
                part = batch[start:start + self.at_once]
                inputs = self.collate(encoded, part)
                with self.precision.context():
                    logits = self.model(**inputs).logits
                loss = losses(self.kind, logits, targets[part], self.weights).sum() / count
                (scaler.scale(loss) if scaler else loss).backward()
                total = total + loss.detach()
        return float(total)             # one wait for the device at each step, which also finds a NaN at that step

    # --- the best epoch ---------------------------------------------------------------------

    def _judge(self, epoch):
        """Evaluates; remembers the weights when they are the best so far. False when there is nothing to judge by."""
        found = self.evaluate()
        self._evaluated = self.step
        if found is None:
            return False
        score, loss = found
        self.run.metric("val", "macro_f1", score, epoch)
        self.run.metric("val", "loss", loss, epoch)
        if self.best is None or (score, -loss) > self.best[0]:
            state = {n: p.detach().to("cpu", copy=True) for n, p in self.model.state_dict().items()
                     if n in self._trained_names()}
            self.best = ((score, -loss), epoch, state)
        return True

    def _trained_names(self):
        """Names in the state dict that training changes: trained parameters, and buffers (running statistics)."""
        if not hasattr(self, "_names"):
            frozen = {n for n, p in self.model.named_parameters() if not p.requires_grad}
            self._names = set(self.model.state_dict()) - frozen
        return self._names

    def _enough(self, epoch):
        patience = self.params["early_stopping"]
        return bool(patience) and epoch - self.best[1] >= patience

    def _keep(self, epoch):
        if self.step == 0:
            raise TrainerError("stopped and kept before the first step: there is no model to keep",
                               "let it train a while first")
        self.run.log("stopped and kept at step %d of %d" % (self.step, self.total))
        if getattr(self, "_evaluated", None) != self.step:
            self._judge(epoch)
        return self._restore()

    def _restore(self):
        if self.best is None:
            return None
        self.model.load_state_dict(self.best[2], strict=False)
        self.run.log("the best epoch is %d, macro-F1 %.4f on the val items" % (self.best[1], self.best[0][0]))
        return self.best[1]


def predict_logits(model, encoded, collate, precision, run, phase=None):
    """Logits for every item in order, as a float32 tensor on the CPU.

    Batches are made by length, and get smaller when memory does not suffice.
    """
    import torch

    model.eval()
    most = CPU_TOKENS if torch.device(collate.device).type == "cpu" else GPU_TOKENS
    todo = prediction_batches(encoded.lengths, most)
    found, done = [None] * len(encoded.lengths), 0
    with torch.inference_mode(), precision.context():       # one context: weights are cast once
        while todo:
            run.check()
            batch = todo.pop(0)
            failed = None
            try:
                logits = model(**collate(encoded, batch)).logits.float().cpu()
            except Exception as error:
                if not (is_gpu_out_of_memory(error) or is_host_out_of_memory(error)):
                    raise
                failed = is_gpu_out_of_memory(error)
            if failed is not None:
                release(collate.device)
                if len(batch) == 1:
                    raise too_large(failed)
                most = max(1, len(batch) // 2)
                run.warn("out of memory while predicting %d items at once: going on with %d" % (len(batch), most))
                todo = [b[n:n + most] for b in [batch, *todo] for n in range(0, len(b), most)]
                continue
            for n, row in zip(batch, logits):
                found[n] = row
            done += len(batch)
            if phase:
                run.progress(phase, done, len(found))
    return torch.stack(found)


def too_large(on_gpu):
    """The error when not even one item at a time fits."""
    if on_gpu:
        return OutOfMemory("GPU out of memory: lower batch_size or max_length",
                           "not even one item at a time fits: a smaller model, or a GPU with more free memory",
                           code="gpu_out_of_memory")
    return OutOfMemory("host out of memory: lower max_length or take a smaller model",
                       "not even one item at a time fits")


def release(device):
    """Gives cached GPU memory back."""
    import gc

    import torch

    gc.collect()
    if str(device).startswith("cuda"):
        torch.cuda.empty_cache()


