"""What numbers are computed in."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable

BF16_GAIN = 1.5         # on a CPU; well above what the trial's noise could make of equal speeds


class Precision:
    """What numbers are computed in: "fp32", "bf16" or "fp16"; ``wanted`` may be "auto"."""

    def __init__(self, wanted: str, device: str, warn: Callable[[str], None] = lambda text: None) -> None:
        import torch

        self.kind = torch.device(device).type
        self.name = self._decide(wanted, warn)
        self.dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.name]
        self.scales = self.name == "fp16" and self.kind == "cuda"

    def _decide(self, wanted: str, warn: Callable[[str], None]) -> str:
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

    def context(self) -> Any:
        """Autocast, or nothing for fp32."""
        import torch

        return torch.autocast(self.kind, dtype=self.dtype) if self.dtype is not None else contextlib.nullcontext()


def cpu_is_quick_in_bf16() -> bool:
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
        spent[dtype] = min(_cpu_seconds(a.matmul, b) for _ in range(7))
    return spent[torch.float32] > BF16_GAIN * spent[torch.bfloat16]


def _cpu_seconds(work: Callable[[Any], Any], argument: Any) -> float:
    began = time.process_time()
    work(argument)
    return time.process_time() - began
