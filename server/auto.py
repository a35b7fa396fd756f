"""Automatic runs: watched from here while a server is up."""

from __future__ import annotations

from typing import Any

from .study import Study


class Automatic:
    def __init__(self, study: Study):
        self._study = study

    def look(self) -> None: ...

    def close(self) -> None: ...

    def told(self) -> dict[str, Any]:
        return {"enabled": False, "words": "off (model_training.auto_retrain)"}
