"""Which runs the page's table shows: the newest, or those with some words, or the best first."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

import flask

from ..runtime.store import Run, Store
from . import views
from .api import MOST_RUNS
from .asking import number

SHOWN = 25
#: What "More runs" leads to, one after the other.
_MORE = (200, MOST_RUNS)


class Wanted(NamedTuple):
    """Which runs the table is to show: at most so many, those with these words, by score or the newest first."""

    limit: int
    q: str
    by: str


def wanted() -> Wanted:
    asked = flask.request.args
    by = "score" if asked.get("by") == "score" else ""
    return Wanted(number("limit", SHOWN, MOST_RUNS, 1), asked.get("q", "").strip()[:200], by)


def query(wanted: Wanted) -> str:
    return urlencode({name: value for name, value in wanted._asdict().items() if value})


def shown(store: Store, wanted: Wanted) -> tuple[list[Run], str | bool]:
    """(the runs of the table; how to ask for more of them: "" when these are all, True when none more are shown)."""
    if wanted.q or wanted.by:
        found = [run for run in store.runs() if _has_words(run, wanted.q)]
        if wanted.by:
            found.sort(key=_mean_score, reverse=True)
    else:
        found = store.runs(wanted.limit + 1)
    if len(found) <= wanted.limit:
        return found, ""
    following = next((more for more in _MORE if more > wanted.limit), None)
    return found[:wanted.limit], query(wanted._replace(limit=following)) if following else True


def _mean_score(run: Run) -> float:
    """Of the run's held-out scores; less than any score where there is none."""
    scores = [one["macro_f1"] for one in views.held_out(run).values()]
    return sum(scores) / len(scores) if scores else -1.0


def _has_words(run: Run, words: str) -> bool:
    """Whether each word stands in what the table of runs shows of this one."""
    told = (run.run_id, run.state, run.trainer, *run.schemas, views.ran_on(run), run.trigger, run.reason)
    text = " ".join(told).casefold()
    return all(word in text for word in words.casefold().split())
