"""What every trainer on transformers does before it starts: quiet libraries, a seed, how many epochs."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from ..bundle import Example
    from .base import Handle, Task
    from .hf_checkpoint import Checkpoints

AUTO_STEPS = 400                # epochs "auto": as many as make this many steps, within bounds

_NUMBER, _WHOLE = {"type": "number"}, {"type": "integer"}
LORA: Dict[str, Dict[str, Any]] = {
    "r": dict(_WHOLE, minimum=1, maximum=4096, default=16, description="rank of the adapters"),
    "alpha": dict(_NUMBER, exclusiveMinimum=0, default=32, description="scale of the adapters"),
    "dropout": dict(_NUMBER, minimum=0, maximum=0.9, default=0.05, description="dropout in the adapters"),
    "target_modules": {"type": ["array", "null"], "items": {"type": "string"}, "minItems": 1, "default": None,
                       "description": "names of the layers that get one; not given: peft's choice"},
}
REVISION = {"type": ["string", "null"], "pattern": "^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$", "default": None,
            "description": "branch, tag or commit of a model of huggingface.co; not given: the newest"}
CHECKPOINT_MINUTES = {"type": ["number", "null"], "minimum": 0, "default": 10,
                      "description": "time between two checkpoints, from which a job that is started again goes on; "
                                     "null for none"}


def quiet(model: str) -> None:
    """Nothing on the network but what ``hf_find.find`` does, and no bars of tqdm in stderr.log."""
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")    # a thread that asks the hub for another format
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if os.path.isdir(model):
        os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def seed(number: int, device: str) -> None:
    """The same seed, the same model."""
    import torch

    torch.manual_seed(number)
    if device.startswith("cuda"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)


def epochs(n: int, params: Mapping[str, Any], bounds: Tuple[int, int]) -> int:
    """The epochs that were asked for, else as many as suit ``n`` items."""
    if params["epochs"]:
        return int(params["epochs"])
    steps = max(1, math.ceil(n / (params["batch_size"] * params["gradient_accumulation"])))
    return min(bounds[1], max(bounds[0], math.ceil(AUTO_STEPS / steps)))


def checkpoints(task: Task, directory: str, train: Sequence[Example], val: Sequence[Example],
                run: Handle) -> Optional[Checkpoints]:
    """The checkpoints of this training, or None when none are wanted or there is no place for them."""
    from .hf_checkpoint import Checkpoints, fingerprint

    minutes = task.params["checkpoint_minutes"]
    if minutes is None or task.scratch is None:
        return None
    return Checkpoints(task.scratch, fingerprint(task, directory, train, val), minutes, run)
