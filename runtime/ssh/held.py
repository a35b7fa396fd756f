"""What a run holds by way of its logins. It stands in the ledger before it is taken hold of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Held:
    """``controls``: directories of kept connections on this machine. ``doors``: (directory of the forwarded
    socket there, our socket). ``touched``: the host was reached at all; ``host`` its own name. ``spare``: the
    model files stay there."""

    controls: tuple[str, ...] = ()
    doors: tuple[tuple[str, str], ...] = ()
    touched: bool = False
    host: str = ""
    spare: bool = False

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Held:
        return cls(
            tuple(value.get("controls") or ()), tuple((there, here) for there, here in value.get("doors") or ()),
            bool(value.get("touched")), str(value.get("host") or ""), bool(value.get("spare")),
        )

    def to_json(self) -> dict[str, Any]:
        return {"controls": list(self.controls), "doors": [list(door) for door in self.doors],
                "touched": self.touched, "host": self.host, "spare": self.spare}

    def and_control(self, directory: str) -> Held:
        return replace(self, controls=(*self.controls, directory))

    def and_door(self, there: str, here: str) -> Held:
        return replace(self, doors=(*self.doors, (there, here)), touched=True)

    def without_controls(self) -> Held:
        return replace(self, controls=())

    def sockets(self) -> str:
        """As the scripts read them."""
        return " ".join(there for there, _ in self.doors) or "-"
