"""Following a run in the terminal: a live line on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import re
import time
from typing import Any

from ..runtime import places, summon
from ..runtime.eventlog import Tail
from ..runtime.places import Places
from ..runtime.store import Run, Store
from .common import full_disk, is_terminal, say

_LOOK_S = 0.1
_LOOKS_AT_DISK = 20  #: in so many looks once
#: What a worker wrote to stderr stands in the run log, tracebacks and all; here its reason is enough.
_STDERR = re.compile(r"\S+ stderr: ")


def watch(store: Store, where: Places, run_id: str) -> bool:
    """Shows the run until it has ended and settled; True when Ctrl-C cancelled it.

    A second Ctrl-C stops watching: the run is being cancelled all the same.
    """
    view = _Live() if is_terminal() else _Plain()
    log = Tail(where.run_dir(run_id) / places.RUN_LOG)
    interrupted = False
    looks = 0
    trouble = ""
    with view:
        while True:
            try:
                if looks % _LOOKS_AT_DISK == 0 and trouble != (trouble := full_disk(where.root)) and trouble:
                    view.lines([trouble])
                looks += 1
                summon.ensure_supervisor(where)
                run = store.get(run_id)
                view.lines([line for line in log.lines() if not _STDERR.match(line)])
                if run is None or (run.over and run.settled):
                    return interrupted
                view.show(run, _waiting_for(store, run))
                time.sleep(_LOOK_S)
            except KeyboardInterrupt:
                if interrupted:
                    return True
                interrupted = True
                store.wish(run_id, "cancel")
                view.lines(["cancelling; Ctrl-C again stops watching"])


def _waiting_for(store: Store, run: Run) -> str:
    if run.state != "queued":
        return ""
    ahead = [other for other in store.open_runs() if other.place < run.place]
    return f"{len(ahead)} before this one, now {ahead[0].run_id}" if ahead else ""


class _Plain:
    def __enter__(self) -> _Plain:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def lines(self, lines: list[str]) -> None:
        for line in lines:
            say(line)

    def show(self, run: Run, waiting: str) -> None: ...


class _Live:
    """One line at the bottom: state, step, progress and time; the log goes by above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(highlight=False)
        self._progress = Progress(
            SpinnerColumn(), TextColumn("[bold]{task.fields[state]}"), TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30), TextColumn("{task.fields[count]}"), TimeElapsedColumn(),
            console=self._console, transient=True,
        )
        self._task = self._progress.add_task("", state="queued", count="", total=None)

    def __enter__(self) -> _Live:
        self._progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._progress.__exit__(*error)

    def lines(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False)

    def show(self, run: Run, waiting: str) -> None:
        progress = run.facts.get("progress") or {}
        total, current = progress.get("total"), progress.get("current")
        lost = run.facts.get("connection") or {}
        if not run.over and not lost.get("up", True):
            waiting = f"no connection for {time.time() - lost.get('since', 0):.0f} s: {lost.get('why')}"
        moving = run.state in ("running", "evaluating") and total
        self._progress.update(
            self._task, state=run.state, description=waiting or run.step, total=total if moving else None,
            completed=current or 0 if moving else 0,
            count=f"{progress.get('phase', '')} {current:g}/{total:g}" if moving and current is not None else "",
        )
