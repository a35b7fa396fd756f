"""What ended runs still hold elsewhere: how long a supervisor stays up for it, and when it lets the matter rest.

A host that is gone for good would otherwise keep a process here for good. The debt stays in the ledger, is shown,
and is tried again by the next supervisor, which does not wait for it a second time.
"""

from __future__ import annotations

from .bounds import bounds
from .launchers import Unwelcome
from .store import Release, Store

_FACT = "release_given_up"
RESTS = "no longer tried, the next supervisor does once more (potato training supervise)"


def rests(store: Store, release: Release) -> bool:
    """Whether a supervisor has tried for long enough."""
    run = store.get(release.run_id)
    return run is not None and bool(run.facts.get(_FACT))


def press(store: Store) -> bool:
    """Whether something is owed that a supervisor should be started for."""
    return any(not rests(store, release) for release in store.releases())


def of_backend(store: Store, backend: str) -> list[Release]:
    """What runs on this backend still hold that are over."""
    runs = {run.run_id for run in store.runs() if run.over and run.backend == backend}
    return [release for release in store.releases() if release.run_id in runs]


def pause_s(tries: int, error: Exception) -> float:
    """Until the next try after so many that failed."""
    b = bounds()
    first = b.unwelcome_first_s if isinstance(error, Unwelcome) else b.release_first_s
    return min(first * 2 ** min(tries, 20), b.release_most_s)


def give_up(store: Store, release: Release, error: str) -> str:
    """Lets the matter rest; what is shown of it."""
    store.record(release.run_id, facts={_FACT: True})
    return f"{error}; {RESTS}"
