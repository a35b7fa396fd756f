"""Which GPU a run gets: what nvidia-smi said, read field by field, and a choice. Pure.

Free memory decides, not utilisation. A field that cannot be read is unknown, never zero. MIG slices are
cards of their own, whose free memory nvidia-smi does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .talk import Result

_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[^)]+)\)")
#: What ``timeout`` answers when it had to end the command.
_HUNG = ("124", "137")


class NoGpu(Exception):
    """The run cannot have what it asks for; ``hint`` is the remedy."""

    def __init__(self, reason: str, hint: str = ""):
        super().__init__(reason)
        self.hint = hint


@dataclass(frozen=True)
class Card:
    """One GPU, or one slice of one. Memory in MiB, None where unknown; ``kernels``: None when nobody tried."""

    number: str
    uuid: str
    name: str
    total_mb: int | None = None
    free_mb: int | None = None
    busy_percent: int | None = None
    kernels: bool | None = None

    def __str__(self) -> str:
        free = "free memory unknown" if self.free_mb is None else f"{self.free_mb} MB free"
        if self.free_mb is not None and self.total_mb is not None:
            free = f"{self.free_mb} of {self.total_mb} MB free"
        busy = "" if self.busy_percent is None else f", {self.busy_percent} % busy"
        none = " (torch there has no kernels for it)" if self.kernels is False else ""
        return f"GPU {self.number} {self.name}: {free}{busy}{none}"

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, "uuid": self.uuid, "name": self.name, "total_mb": self.total_mb,
                "free_mb": self.free_mb, "busy_percent": self.busy_percent, "kernels": self.kernels}


@dataclass(frozen=True)
class Choice:
    """What the run gets. ``candidates`` (UUIDs, the best first) are for the agent, who takes the first that
    nobody has taken meanwhile; none means that nothing is to be set."""

    words: str
    candidates: tuple[str, ...] = ()
    card: Card | None = None


def cards(said: Result) -> list[Card]:
    """The cards of a probe's answer, slices in the place of the cards that are sliced."""
    kernels = _kernels(said.all("kernels"))
    whole = [card for line in said.all("gpu") if (card := _card(line, kernels)) is not None]
    slices = _slices(said.all("device"))
    return [
        part for card in whole
        for part in ([_slice(card, n, uuid, size) for n, (uuid, size) in enumerate(slices[card.uuid])]
                     if slices.get(card.uuid) else [card])
    ]


def _card(line: str, kernels: Mapping[str, bool]) -> Card | None:
    fields = [field.strip() for field in line.split(",")]
    if len(fields) < 6 or not fields[0].isdigit():
        return None
    number, uuid, *name, total, free, busy = fields
    return Card(number, uuid, ", ".join(name), _number(total), _number(free), _number(busy), kernels.get(number))


def _number(text: str) -> int | None:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None


def _kernels(lines: Iterable[str]) -> dict[str, bool]:
    return {words[0]: words[1] == "there" for line in lines if len(words := line.split()) > 1}


def _slices(lines: Iterable[str]) -> dict[str, list[tuple[str, int | None]]]:
    """{a card's UUID: [(a slice's UUID, its size in MiB)]} of `nvidia-smi -L`."""
    found: dict[str, list[tuple[str, int | None]]] = {}
    card = ""
    for line in lines:
        uuid = _UUID.search(line)
        if uuid is None:
            continue
        if uuid[1].startswith("GPU-"):
            card = uuid[1]
        else:
            size = re.search(r"MIG \S*?(\d+)gb", line)
            found.setdefault(card, []).append((uuid[1], int(size[1]) * 1024 if size else None))
    return found


def _slice(card: Card, n: int, uuid: str, size: int | None) -> Card:
    return Card(f"{card.number}:{n}", uuid, f"{card.name} MIG", size, None, None, card.kernels)


def choose(said: Result, host: str, facts: Mapping[str, Any]) -> Choice:
    """The GPU for a run with these facts of its place (gpus, gpu_is_set, min_free_gpu_mb). Raises NoGpu."""
    wanted = str(facts["gpus"])
    if wanted == "none":
        return Choice("CPU, as gpus: none says")
    there = _present(said, host)
    if facts.get("gpu_is_set"):
        return Choice("the GPUs of CUDA_VISIBLE_DEVICES in env")
    if wanted != "auto":
        return _pinned(there, wanted, host, said)
    if not there:
        return Choice("CPU: no GPU there")
    usable = [card for card in there if card.kernels is not False]
    if not usable:
        raise _no_kernels(there, said)
    return _freest(usable, there, host, int(facts["min_free_gpu_mb"]))


def _present(said: Result, host: str) -> list[Card]:
    code = said.one("nvidia_smi", "absent")
    words = " ".join(said.all("gpu")).strip()
    if code == "absent" or "No devices were found" in words:
        return []
    if code in _HUNG:
        raise NoGpu(f"nvidia-smi on {host} gave no answer within 20 seconds",
                    "the driver hangs: ask for a reboot of the host, or set gpus: none to train on the CPU")
    if code != "0":
        words = words or "it said nothing"
        reboot = "; the host needs a reboot" if "Driver/library version mismatch" in words else ""
        raise NoGpu(f"nvidia-smi on {host} failed ({code}): {words[:300]}{reboot}",
                    "mend the driver, or set gpus: none to train on the CPU")
    found = cards(said)
    if words and not found:  # never the CPU without a word about it
        raise NoGpu(f"nvidia-smi on {host} gave an answer that cannot be read: {words[:300]}",
                    "mend nvidia-smi there, or set gpus: none to train on the CPU")
    return found


def _pinned(there: list[Card], wanted: str, host: str, said: Result) -> Choice:
    chosen = []
    for name in wanted.split(","):
        found = next((card for card in there if name in (card.number, card.uuid)), None)
        if found is None and not any(card.number.startswith(f"{name}:") for card in there):
            raise NoGpu(f"{host} has no GPU {name}", _listed(there) or "nvidia-smi lists none there")
        chosen += [found] if found else []
    if chosen and all(card.kernels is False for card in chosen):
        raise _no_kernels(chosen, said)
    names = ", ".join(f"{card.number} {card.name}" for card in chosen) or wanted
    return Choice(f"GPU {names}, as gpus says", card=chosen[0] if chosen else None)


def _freest(usable: list[Card], there: list[Card], host: str, least_mb: int) -> Choice:
    known = [card for card in usable if card.free_mb is not None]
    if known:
        enough = sorted((c for c in known if (c.free_mb or 0) >= least_mb), key=lambda c: -(c.free_mb or 0))
        if not enough:
            raise NoGpu(f"No GPU has {least_mb} MB free",
                        f"{_listed(there)}; wait, lower min_free_gpu_mb, or pin one with gpus")
        return Choice(str(enough[0]), tuple(card.uuid for card in enough), enough[0])
    if len(usable) > 1:
        raise NoGpu(f"free GPU memory is not readable on {host}; set CUDA_VISIBLE_DEVICES in env", _listed(there))
    return Choice(str(usable[0]), card=usable[0])


def _no_kernels(there: list[Card], said: Result) -> NoGpu:
    why = "; ".join(line.partition(" missing ")[2] for line in said.all("kernels") if " missing " in line)
    built = " ".join(said.one("torch").split()[1:])
    names = ", ".join(f"GPU {card.number} {card.name}" for card in there)
    return NoGpu("This host's torch has no kernels for any of its GPUs",
                 f"{names} ({why}; built for {built}): a torch build for those GPUs is needed, or another host")


def _listed(there: list[Card]) -> str:
    return "; ".join(map(str, there))
