"""Taking a card for the worker: at the last moment, and so that no other run here takes it too.

Memory is allocated minutes after a card was chosen; two runs that start together would both see it free.
So there is a lock for each card, held by the worker for its life: it ends with the process, however that
ends, and holds between accounts and between servers that know nothing of each other.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from typing import List, Optional, Sequence, Tuple

#: A broken driver can make nvidia-smi hang for ever.
_BOUND_S = 20.0
LOCKS = "/tmp"  # noqa: S108 sticky, and the same for everybody


class NoCard(Exception):
    """No card is left for this run; the sentence is for the user."""


class Card:
    """A GPU by its UUID; ``free_mb`` None where nvidia-smi does not tell."""

    def __init__(self, uuid: str, name: str = "", free_mb: Optional[float] = None):
        self.uuid, self.name, self.free_mb = uuid, name, free_mb

    def __str__(self) -> str:
        return "GPU %s (%s)" % (self.name or "?", self.uuid)


def take_card(candidates: Sequence[str], least_mb: float, folder: Optional[str] = None) -> Tuple[Card, int]:
    """The candidate with most free memory that nobody has taken, and the descriptor of its lock. Raises NoCard."""
    cards = look(candidates)
    full = [card for card in cards if card.free_mb is not None and card.free_mb < least_mb]
    taken: List[Card] = []
    for card in sorted(cards, key=lambda card: -(card.free_mb or 0)):
        if card in full:
            continue
        lock = _lock(os.path.join(folder or LOCKS, "potato-training-%s.lock" % _plain(card.uuid)))
        if lock is not None:
            return card, lock
        taken.append(card)
    why = ["%s is taken by another run" % card for card in taken]
    why += ["%s has %g MB" % (card, card.free_mb or 0) for card in full]
    raise NoCard("No GPU has %g MB free: %s" % (least_mb, "; ".join(why)))


def look(candidates: Sequence[str]) -> List[Card]:
    """The candidates as they are now; in their order, memory unknown, when nvidia-smi does not say."""
    now = {card.uuid: card for card in _ask()}
    return [now.get(uuid) or Card(uuid) for uuid in candidates]


def _ask() -> List[Card]:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid,name,memory.free", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_BOUND_S, check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    cards = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) >= 3:
            cards.append(Card(fields[0], ", ".join(fields[1:-1]), float(fields[-1]) if fields[-1].isdigit() else None))
    return cards


def _lock(path: str) -> Optional[int]:
    """A held descriptor, or None when somebody else holds it. Nobody else's file is ever written to."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            os.fchmod(descriptor, 0o644)
        except FileExistsError:
            descriptor = os.open(path, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _plain(uuid: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in uuid)[:100]
