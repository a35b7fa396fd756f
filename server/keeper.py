"""A thread of a server: keeps a supervisor up while there is work, and lets automatic runs be looked at."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ..runtime import debts, summon
from ..runtime.notify import Deliveries
from ..schema.errors import UserError
from .auto import Automatic
from .study import Study

_log = logging.getLogger(__name__)
#: Between two tries to start a supervisor that does not come up, at most.
_PAUSE_S = 60.0
#: A fork waits no longer for a look that is going on.
_FORK_S = 10.0


class _Again(Exception):
    """Nothing was tried: it is as it was."""


class Keeper:
    """``also`` is called at each look; automatic runs are looked at after a ``nudge``, and every ``auto_s`` anyway.

    What goes wrong is said once, stands on the page (``Study.troubles``), and is tried again.
    """

    def __init__(self, study: Study, auto: Automatic, look_s: float, *, auto_s: float = 0.0,
                 also: Callable[[], None] = lambda: None, say: Callable[[str], Any] = _log.warning):
        self._study, self._auto, self._look_s, self._auto_s = study, auto, look_s, auto_s
        self._also, self._say = also, say
        self._stop = threading.Event()
        self._busy = threading.Lock()
        self._held = False
        self._nudged = True
        self._next_auto = 0.0
        self._next_start, self._pause_s = 0.0, 0.0

    def start(self) -> None:
        threading.Thread(target=self._keep, name="potato-training", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def nudge(self) -> None:
        """An annotation was saved. Costs nothing: it is called within the save."""
        self._nudged = True

    def _keep(self) -> None:
        while True:
            with self._busy:
                self._try("items", self._also)
                self._try("supervisor", self._tend)
                self._try("automatic runs", self._look_at_auto)
                self._study.store.close()  # nothing may be open should the server fork
            if self._stop.wait(self._look_s):
                return

    def _tend(self) -> None:
        """A supervisor that was killed is started again while a run or a release is open that does not rest."""
        study = self._study
        if summon.supervisor_runs(study.places):
            self._pause_s = 0.0
            return
        if time.monotonic() < self._next_start:
            raise _Again
        if study.store.open_runs() or debts.press(study.store) or Deliveries(study.store, study.places).owed():
            self._pause_s = min(_PAUSE_S, max(self._look_s, self._pause_s * 2))
            self._next_start = time.monotonic() + self._pause_s
            summon.ensure_supervisor(study.places)
            self._next_start = 0.0

    def _look_at_auto(self) -> None:
        if self._nudged or time.monotonic() >= self._next_auto:
            self._nudged = False
            self._next_auto = time.monotonic() + self._auto_s
            if not self._auto.look():  # too soon after the last one
                self._nudged = True

    def _try(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
            text = ""
        except _Again:
            return
        except UserError as error:
            text = "; ".join(filter(None, (error.message, error.hint)))
        except Exception as error:  # whatever it is, tomorrow it may be gone; the server must not be
            text = f"{type(error).__name__}: {error}"
        if text and text != self._study.troubles.get(what):
            self._say(text)
        self._study.troubles[what] = text

    # --- servers that fork after they have read their config ------------------------------------------

    def hold(self) -> None:
        """Before a fork: waits for the look that is going on, so that the child inherits nothing half-done."""
        self._held = self._busy.acquire(timeout=_FORK_S)
        self._study.store.close()

    def go_on(self) -> None:
        if self._held:
            self._busy.release()

    def after_fork(self) -> None:
        """In the child, which has no thread of ours until ``start``."""
        self._busy = threading.Lock()
        self._stop = threading.Event()
