"""Automatic runs, watched while a server is up."""

from __future__ import annotations

from ..runtime.auto import AutoRetrain
from .study import Study


class Automatic(AutoRetrain):
    """Reads the config as the study has it: a change is seen without a restart."""

    def __init__(self, study: Study):
        super().__init__(study.store, study.places, study.config)
