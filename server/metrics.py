"""/metrics: the project in Prometheus's text format, for whoever has the admin key."""

from __future__ import annotations

from collections import Counter
from typing import Any

import flask

from .. import __version__
from ..runtime import summon
from ..worker.protocol import ENDS, STATES
from .study import Study
from .views import held_out, queue_of


def answer(study: Study, auto: Any) -> flask.Response:
    return flask.Response(text(study, auto), content_type="text/plain; version=0.0.4; charset=utf-8")


def text(study: Study, auto: Any) -> str:
    """One page of metrics. Label values are escaped as the format wants."""
    runs = study.store.runs()
    states = Counter(run.state for run in runs)
    waiting = study.store.open_runs()
    out = [*_family("potato_training_info", "gauge", "The server's version.", [({"version": __version__}, 1)])]
    out += _family("potato_training_runs", "gauge", "Runs in the ledger by state.",
                   [({"state": state}, states.get(state, 0)) for state in STATES])
    out += _family("potato_training_queue", "gauge", "Runs that wait for their turn.", [({}, len(queue_of(waiting)))])
    out += _family("potato_training_releases_open", "gauge", "Things on far sides still to be released.",
                   [({}, len(study.held()))])
    out += _family("potato_training_supervisor_up", "gauge", "Whether a supervisor runs.",
                   [({}, int(summon.supervisor_runs(study.places)))])
    ended = [run for run in runs if run.state in ENDS and run.ended]
    if ended:
        last = max(ended, key=lambda run: run.ended or 0)
        out += _family("potato_training_last_end_timestamp_seconds", "gauge", "When a run last ended.",
                       [({"state": last.state}, last.ended)])
    good = next((run for run in runs if run.state == "succeeded"), None)
    if good is not None:
        out += _family("potato_training_last_held_out_macro_f1", "gauge", "Held-out macro-F1 of the last good run.",
                       [({"schema": name, "split": m["split"]}, m["macro_f1"]) for name, m in held_out(good).items()])
    fresh = auto.told().get("new_annotations")
    if fresh is not None:
        out += _family("potato_training_new_annotations", "gauge", "Annotations since the last run.", [({}, fresh)])
    return "\n".join(out) + "\n"


def _family(name: str, kind: str, about: str, samples: list[tuple[dict[str, str], Any]]) -> list[str]:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
