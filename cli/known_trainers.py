"""The trainers that a config may name, looked up only when one is named."""

from __future__ import annotations

from ..schema.rules import BUILTIN_NAMES


class KnownTrainers:
    """A mapping name -> TrainerInfo for the schema room. The catalogue, which may import plug-ins, is read on the
    first question that the built-in names do not answer."""

    def __init__(self):
        self._found: dict | None = None

    def _catalogue(self) -> dict:
        if self._found is None:
            from ..worker.trainers import catalogue

            self._found = catalogue(plugins=True)
        return self._found

    def __contains__(self, name: str) -> bool:
        return name in BUILTIN_NAMES or name in self._catalogue()

    def __iter__(self):
        return iter(dict.fromkeys((*BUILTIN_NAMES, *self._catalogue())))

    def get(self, name: str):
        return self._catalogue().get(name)
