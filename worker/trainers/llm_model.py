"""A causal language model with LoRA adapters: loading (in 4 bits where that can be), asking, saving."""

from __future__ import annotations

import inspect
import os
from importlib.util import find_spec
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..failures import TrainerError
from .hf_find import find, of_its_kind
from .hf_model import ADAPTER_DIR, put_adapters, settle_adapter
from .llm_prompt import Answers

NO_ANSWERS = ("give a model that writes text, such as Qwen/Qwen2.5-0.5B-Instruct; hf-text-classification takes the "
              "others")


def in_four_bits(wanted: str, device: str) -> bool:
    """Whether the base is loaded in 4 bits: where CUDA and bitsandbytes are there, unless told otherwise."""
    can = device.startswith("cuda") and find_spec("bitsandbytes") is not None
    if wanted == "always" and not can:
        raise TrainerError("four_bit: 4-bit weights need a CUDA device and bitsandbytes, and %s"
                           % ("bitsandbytes is not installed" if device.startswith("cuda") else "there is no CUDA"),
                           "leave four_bit at auto, or train where they are")
    return can and wanted != "never"


def load_base(directory: str, device: str, dtype: Any, four_bit: bool) -> Any:
    """The base model on the device; ``dtype`` None is float32."""
    import torch
    import transformers

    version = tuple(int(p) for p in transformers.__version__.split(".")[:2])
    options: Dict[str, Any] = {"dtype" if version >= (4, 56) else "torch_dtype": dtype or torch.float32}
    if four_bit:
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype or torch.bfloat16)
        options["device_map"] = {"": device}
    with of_its_kind(directory, "is no causal language model"):
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            directory, local_files_only=True, use_safetensors=True, output_loading_info=True, **options)
    missing = sorted(info.get("missing_keys", ()))
    if missing:         # they would be random, and others each time the adapter is loaded
        raise TrainerError("the model in %s cannot answer: it comes without the weights %s"
                           % (directory, ", ".join(missing[:3])), NO_ANSWERS)
    model = model if four_bit else _to(model, device)
    if _looks_ahead(model):
        raise TrainerError("the model in %s is no causal language model: it looks ahead" % directory, NO_ANSWERS)
    return model


def _looks_ahead(model: Any) -> bool:
    """Whether what follows a token changes what the model says at it, as in an encoder like BERT."""
    import torch

    model.eval()
    with torch.inference_mode():
        first, second = model(input_ids=torch.tensor([[1, 2], [1, 3]], device=model.device)).logits[:, 0].float()
    return bool((first - second).abs().max() > 0.01 * first.abs().max())


def _to(model: Any, device: str) -> Any:
    return model.to(device)


def add_lora(model: Any, lora: Mapping[str, Any], four_bit: bool, frugal: bool) -> Any:
    """The model with adapters, which alone are trained. ``frugal`` computes activations twice to save memory."""
    from peft import prepare_model_for_kbit_training

    if four_bit:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=frugal)
    elif frugal:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    return put_adapters(model, lora, task_type="CAUSAL_LM")


def save_adapter(model: Any, directory: str, base: str, revision: Optional[str]) -> None:
    """Writes the adapter as peft reads it; another machine finds the base model by its name and commit."""
    settle_adapter(model, base, revision)
    # Embeddings are not trained; left to itself peft asks the hub about them.
    model.save_pretrained(os.path.join(directory, ADAPTER_DIR), save_embedding_layers=False)


def load_adapter(directory: str, base: str, revision: Optional[str], device: str, dtype: Any) -> Any:
    """The model that ``save_adapter`` wrote, on the base that is found by its name and commit."""
    from peft import PeftModel

    model = load_base(find(base, revision), device, dtype, False)
    return PeftModel.from_pretrained(model, os.path.join(directory, ADAPTER_DIR)).to(device)


class Asker:
    """Asks the model for what follows. Rows are padded on the left, so that their ends lie beneath each other."""

    def __init__(self, model: Any) -> None:
        self.model = model
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        takes = inspect.signature(inner.forward).parameters
        self._positions = "position_ids" in takes
        self._keep = next((n for n in ("logits_to_keep", "num_logits_to_keep") if n in takes), None)
        self._cache = "use_cache" in takes

    def last(self, inputs: Dict[str, Any], count: int) -> Any:
        """Logits at the last ``count`` places of each row, in float32; the rest is not computed where that can be."""
        if self._positions:
            inputs["position_ids"] = (inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
        if self._keep:
            inputs[self._keep] = count
        if self._cache:
            inputs["use_cache"] = False
        return self.model(**inputs).logits[:, -count:].float()


def answer_losses(asker: Asker, inputs: Dict[str, Any], answers: Sequence[Sequence[int]]) -> Any:
    """For each row, which ends with its answer, the negative log likelihood of that answer."""
    import torch

    logits = asker.last(inputs, max(map(len, answers)) + 1).log_softmax(dim=-1)
    found = []
    for row, answer in zip(logits, answers):
        wanted = torch.tensor(answer, device=row.device)
        found.append(-row[-len(answer) - 1:-1].gather(1, wanted[:, None]).sum())
    return torch.stack(found)


def label_scores(asker: Asker, inputs: Dict[str, Any], answers: Answers, ways: Sequence[int]) -> Any:
    """For each row, which ends with the beginning of answers number ``ways``: what its forks say of each label."""
    import torch

    logits = asker.last(inputs, answers.longest_way + 1)
    scores = torch.zeros(len(ways), len(answers.sequences), device=logits.device)
    for n, way in enumerate(ways):
        end, forks = answers.ways[way]
        for fork in forks:
            tokens = [token for token, _ in fork.branches]
            chances = logits[n, len(fork.prefix) - len(end) - 1][tokens].log_softmax(dim=0)
            labels: List[int] = [k for _, ks in fork.branches for k in ks]
            scores[n, labels] += chances.repeat_interleave(
                torch.tensor([len(ks) for _, ks in fork.branches], device=logits.device))
    return scores
