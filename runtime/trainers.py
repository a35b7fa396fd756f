"""The trainers that may be named here: the built-in ones, and those that are installed as plug-ins.

Their modules are imported on the first question that needs them: checking a config mostly does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..schema.errors import UserError
from ..schema.rules import BUILTIN_NAMES


class Trainers(Mapping[str, Any]):
    """name -> TrainerInfo. A name of our own costs no look at what else is installed.

    A plug-in that cannot be imported is among the names, and asking for it raises UserError with the reason.
    """

    def __getitem__(self, name: str) -> Any:
        from ..worker import trainers

        if name not in trainers.BUILTIN_NAMES and (name in BUILTIN_NAMES or name not in trainers.plugin_names()):
            raise KeyError(name)
        try:
            return trainers.load(name).info
        except (trainers.BadSpec, trainers.MissingDependency) as error:
            raise UserError(str(error), "mend or remove the package that brings this trainer") from error

    def __iter__(self) -> Iterator[str]:
        from ..worker import trainers

        return iter([*trainers.BUILTIN_NAMES, *trainers.plugin_names()])

    def __len__(self) -> int:
        return len(list(iter(self)))


class Nameable(Trainers):
    """For checking a config: also the names that the product knows and this version does not bring."""

    def __contains__(self, name: object) -> bool:
        return name in BUILTIN_NAMES or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*BUILTIN_NAMES, *super().__iter__())))
