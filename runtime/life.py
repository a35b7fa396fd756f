"""Where a run stands, and which way it may move.

A run's position is ``(attempt, state)``. Only that pair decides whether news moves a run, so the
same news twice, or late, or in a muddled order, ends in the same place.
"""

from __future__ import annotations

from ..worker.protocol import CANCELLING, ENDS, QUEUED, STATES, WAITING

_PLACE = {state: place for place, state in enumerate(STATES)}

#: States in which a run holds the project's one place: everything between the queue and the end.
#: A job that waits in a scheduler's queue holds nobody back.
EXECUTING = frozenset(STATES) - ENDS - {QUEUED, WAITING}


def is_over(state: str) -> bool:
    """True for the three ends."""
    return state in ENDS


def may_move(old: tuple[int, str], new: tuple[int, str]) -> bool:
    """Whether a run at ``old`` (attempt, state) may be put at ``new``.

    An end is final for every attempt. From ``cancelling`` only an end follows, also when a
    scheduler starts the job once more meanwhile. Otherwise the later attempt wins, and within an
    attempt the state further along; ``new`` equal to ``old`` is no move.
    """
    if is_over(old[1]):
        return False
    if old[1] == CANCELLING:
        return is_over(new[1])
    if is_over(new[1]) or new[1] == CANCELLING:
        return True
    return (new[0], _PLACE[new[1]]) > (old[0], _PLACE[old[1]])
