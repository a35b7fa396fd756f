"""What somebody asked for: one run of one trainer on one backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RunRequest:
    """``schemas`` are names of annotation schemes; ``params`` are the trainer's, already typed.

    ``attempt`` counts from 1. None of it is checked here: the front doors do that.
    """

    run_id: str
    backend: str
    trainer: str
    schemas: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1
