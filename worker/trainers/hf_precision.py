"""What numbers are computed in."""

from __future__ import annotations

import contextlib
from typing import Any, Callable


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
    """Whether the processor multiplies bf16 much faster than fp32: it has AMX, or is AMD's with AVX512-BF16.

    Intel's AVX512-BF16 without AMX is no gain: seen on a virtual Sapphire Rapids, 0.6 times the speed
    of fp32. A trial at the start would tell as well, but a busy machine made it say one thing one day and
    another the next, and the same seed must make the same model.
    """
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            lines = [line for line in f if line.startswith(("flags", "vendor_id"))][:2]
    except OSError:
        return False
    found = " ".join(lines)
    return "amx_bf16" in found or ("AuthenticAMD" in found and "avx512_bf16" in found)
