"""Loading and saving a transformers classification model and its tokenizer. Safetensors only."""

from __future__ import annotations

import os
import re
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from ..failures import TrainerError
from . import hf_find
from .hf_find import of_its_kind

ADAPTER_DIR = "adapter"
MOST_MERGED_BYTES = 1 << 30         # a LoRA model up to this size is also saved whole


def load_tokenizer(directory: str) -> Any:
    """The tokenizer, with a token to pad by (decoders have none: the end of text is taken, on the right)."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise TrainerError("the tokenizer in %s cannot be loaded: %s" % (directory, reason)) from error
    if tokenizer.pad_token_id is None:
        tokenizer.padding_side = "right"
        if tokenizer.eos_token is not None:
            tokenizer.pad_token = tokenizer.eos_token
        else:
            tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    return tokenizer


def load_model(directory: str, tokenizer: Any, labels: Sequence[str], kind: str) -> Tuple[Any, List[str]]:
    """The model with a head for the labels, in float32. -> (model, names of the weights that are new)."""
    from transformers import AutoModelForSequenceClassification

    with of_its_kind(directory, "has no classification form in transformers"):
        model, info = AutoModelForSequenceClassification.from_pretrained(
            directory, local_files_only=True, use_safetensors=True, output_loading_info=True,
            ignore_mismatched_sizes=True, num_labels=len(labels), id2label=dict(enumerate(labels)),
            label2id={label: n for n, label in enumerate(labels)},
            problem_type="multi_label_classification" if kind == "multilabel" else "single_label_classification")
    model.float()                       # a checkpoint in half precision trains badly with AdamW
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        model.resize_token_embeddings(len(tokenizer))
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    mismatched = [entry if isinstance(entry, str) else entry[0] for entry in info.get("mismatched_keys", ())]
    return model, sorted(set(info.get("missing_keys", ())).union(mismatched))


def longest_input(model: Any, tokenizer: Any, wanted: int) -> int:
    """The wanted number of tokens, or what the model can take if that is less."""
    limits = [wanted]
    if tokenizer.model_max_length and tokenizer.model_max_length < 1_000_000:
        limits.append(tokenizer.model_max_length)
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        # Positions of the RoBERTa family start after the padding index.
        family = re.search(r"roberta|camembert|mpnet|longformer|xmod", getattr(model.config, "model_type", "") or "")
        limits.append(positions - (2 if family else 0))
    return min(limits)


def add_lora(model: Any, lora: Mapping[str, Any], new_weights: Sequence[str]) -> Any:
    """The model with LoRA layers; everything that is new to the base model is trained and saved whole with them.

    peft by itself saves modules called ``classifier`` and ``score``: DistilBERT's pre_classifier, or a
    pooler that the checkpoint had no weights for, would be random again in every process that loads
    the adapter.
    """
    head = {name.rsplit(".", 1)[0] for name in new_weights}
    prefix = model.base_model_prefix
    for name, child in model.named_children():
        if name != prefix and next(child.parameters(), None) is not None:
            head.add(name)
    # Only the outermost: a module that is saved whole takes what is inside along.
    head = {name for name in head if not any(name.startswith(other + ".") for other in head)}
    return put_adapters(model, lora, task_type="SEQ_CLS", modules_to_save=sorted(head))


def put_adapters(model: Any, lora: Mapping[str, Any], **settings: Any) -> Any:
    """The model with an adapter in each layer that was asked for, else in those that peft has a list of, else in all
    linear ones. ``settings`` are peft's further ones."""
    from peft import LoraConfig, get_peft_model

    settings.update(r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"])
    wanted = lora.get("target_modules") or None
    try:
        return get_peft_model(model, LoraConfig(target_modules=wanted, **settings))
    except ValueError as error:
        if wanted:
            raise _no_such_layers(model, wanted) from error
        return get_peft_model(model, LoraConfig(target_modules="all-linear", **settings))


def _no_such_layers(model: Any, wanted: Sequence[str]) -> TrainerError:
    """The error when peft finds none of the layers that were asked for, with the names that there are."""
    import torch

    names = sorted({name.rsplit(".", 1)[-1] for name, part in model.named_modules()
                    if isinstance(part, torch.nn.Linear) or type(part).__name__ == "Conv1D"})     # GPT-2's
    return TrainerError("lora.target_modules: the model has no layers %s that an adapter can be put into"
                        % ", ".join(wanted), "its linear layers are %s" % ", ".join(names[:20]))


def save(model: Any, tokenizer: Any, directory: str, base: str, revision: Optional[str]) -> Any:
    """Writes model and tokenizer so that transformers alone loads them. -> the model as it is used from now on.

    A LoRA model is saved as its adapter below ``adapter/`` (with the trained head) and, while that
    is no more than 1 GiB, merged into one plain model as well. ``base`` is the name under which another
    machine finds the model that it belongs to, ``revision`` its commit.
    """
    tokenizer.save_pretrained(directory)
    if not hasattr(model, "peft_config"):
        model.save_pretrained(directory)
        return model
    settle_adapter(model, base, revision)
    model.save_pretrained(os.path.join(directory, ADAPTER_DIR))
    if sum(p.numel() * p.element_size() for p in model.parameters()) > MOST_MERGED_BYTES:
        model.config.save_pretrained(directory)
        return model
    model = model.merge_and_unload()
    model.save_pretrained(directory)
    return model


def settle_adapter(model: Any, base: str, revision: Optional[str]) -> None:
    """Makes what peft writes of an adapter say the base's own name and commit, not this machine's cache, and always
    the same.

    Sets are written in an order that changes with the hash seed (seen in peft 0.13 to 0.21).
    """
    for config in model.peft_config.values():
        config.base_model_name_or_path, config.revision = base, revision
        for name, value in vars(config).items():
            if isinstance(value, set):
                setattr(config, name, sorted(value))


def load_saved(directory: str, base: str, revision: Optional[str]) -> Tuple[Any, Any]:
    """A model that ``save`` wrote. -> (model, tokenizer)."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    tokenizer = load_tokenizer(directory)
    adapter = os.path.join(directory, ADAPTER_DIR)
    if os.path.exists(os.path.join(directory, "model.safetensors")) or not os.path.isdir(adapter):
        model = AutoModelForSequenceClassification.from_pretrained(directory, local_files_only=True,
                                                                   use_safetensors=True)
        return model.float(), tokenizer
    from peft import PeftModel

    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    model = AutoModelForSequenceClassification.from_pretrained(
        hf_find.find(base, revision), config=config, local_files_only=True, use_safetensors=True,
        ignore_mismatched_sizes=True)
    return PeftModel.from_pretrained(model.float(), adapter), tokenizer
