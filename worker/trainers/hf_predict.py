"""Prediction in batches made by length, smaller when memory does not suffice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence

from ..failures import OutOfMemory, is_gpu_out_of_memory, is_host_out_of_memory
from .hf_batches import Collator, Encoded, prediction_batches
from .hf_precision import Precision

if TYPE_CHECKING:
    from .base import Handle

CPU_TOKENS, GPU_TOKENS = 2048, 32768        # padded tokens of a batch


def predict_logits(model: Any, encoded: Encoded, collate: Collator, precision: Precision, run: Handle,
                   ask: Optional[Callable[[Any, Sequence[int]], Any]] = None) -> Any:
    """Logits for every item in order, as a float32 tensor on the CPU.

    Batches are made by length, and get smaller when memory does not suffice. ``ask(inputs, items)`` gives
    a row of numbers an item where they are not the model's own logits.
    """
    import torch

    model.eval()
    most = CPU_TOKENS if torch.device(collate.device).type == "cpu" else GPU_TOKENS
    todo = prediction_batches(encoded.lengths, most)
    found: List[Any] = [None] * len(encoded.lengths)
    with torch.inference_mode(), precision.context():       # one context: weights are cast once
        while todo:
            run.check()
            batch = todo.pop(0)
            failed = None
            try:
                inputs = collate(encoded, batch)
                logits = (model(**inputs).logits if ask is None else ask(inputs, batch)).float().cpu()
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
    return torch.stack(found)


def too_large(on_gpu: bool) -> OutOfMemory:
    """The error when not even one item at a time fits."""
    if on_gpu:
        return OutOfMemory("GPU out of memory: lower batch_size or max_length",
                           "not even one item at a time fits: a smaller model, or a GPU with more free memory",
                           code="gpu_out_of_memory")
    return OutOfMemory("host out of memory: lower max_length or take a smaller model",
                       "not even one item at a time fits")


def release(device: str) -> None:
    """Gives cached GPU memory back."""
    import gc

    import torch

    gc.collect()
    if str(device).startswith("cuda"):
        torch.cuda.empty_cache()


