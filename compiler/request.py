"""What somebody asked for: one run of one trainer on one backend."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class RunRequest(NamedTuple):
    """``schemas`` are names of annotation schemes; ``params`` are the trainer's, already typed.

    ``attempt`` counts from 1. None of it is checked here: the front doors do that. A named tuple, as
    the room's other values are: making four dataclasses costs `potato compile` a thirtieth of its time.
    """

    run_id: str
    backend: str
    trainer: str
    schemas: tuple[str, ...]
    params: Mapping[str, Any] = MappingProxyType({})
    attempt: int = 1
