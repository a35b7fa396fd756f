"""The values of one run's page, and of two runs side by side."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ..compiler.compile import note_of
from ..project.writeback import published_runs
from ..runtime import places
from ..runtime.slurm.words import job_words
from ..runtime.store import Run
from . import artifacts, charts, learning, logtail, views
from .hub import PUSHING, standing
from .rendering import size

if TYPE_CHECKING:
    from .pages import Shared

#: A larger confusion matrix is shown as its most frequent confusions.
_MATRIX = 25
_LOG_BYTES = 96 * 1024


def live_values(shared: Shared, run: Run) -> dict[str, Any]:
    """What changes while a run goes on."""
    curves = []
    for name, series in _series(shared, run).items():
        curves.append({"name": name, "chart": charts.lines(name, series, x_label="minutes of training"),
                       "lines": [(split, points[-1][1]) for split, points in series.items()]})
    open_runs = shared.study.store.open_runs() if not run.over else []
    push = standing(shared.study, run)
    return {
        "run": run, "told": views.summary(run, views.queue_of(open_runs)), "curves": curves,
        "releases": [r for r in shared.study.held() if r.run_id == run.run_id],
        "log_version": None, "push": push, "goes_on": not (run.over and run.settled) or push.get("state") == PUSHING,
    }


def title(run: Run) -> str:
    """What a tab in the background tells."""
    return f"{run.state}: {run.run_id}"


def _series(shared: Shared, run: Run) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """{metric: {split: [(minutes, value)]}}: steps of train and epochs of val are not the same, time is."""
    found = shared.indexes.of(shared.study.run_dir(run) / places.EVENTS).curves()
    begin = min((points[0].t for points in found.values() if points), default=0.0)
    series: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for (name, split), points in found.items():
        if points:
            series.setdefault(name, {})[split or name] = [((p.t - begin) / 60, p.value) for p in points]
    return series


def values(shared: Shared, run: Run, word: str) -> dict[str, Any]:
    """Everything that run.html shows."""
    run_dir = shared.study.run_dir(run)
    path = run_dir / places.RUN_LOG
    log = logtail.last(path, _LOG_BYTES)
    insight = shared.insights.of(run_dir) if run.over else {}
    files = artifacts.listed(run_dir)
    return {
        "live": live_values(shared, run), "run": run, "told": views.summary(run),
        "scores": [_scores(schema, splits, run) for schema, splits in views.metrics(run).items()],
        "insight": None if insight is None else [_insight(schema, one) for schema, one in insight.items()],
        "learning": learning.curves(shared.study.places, run),
        "title": title(run), "agent_log": (run_dir / places.AGENT_LOG).is_file(),
        "log": log, "word": word, "found": logtail.matching(path, word) if word else [],
        "files": files, "files_size": size(sum(file.size for file in files)),
        "artifact_uri": (run.facts.get("report") or {}).get("artifact_uri", ""),
        "scripts": scripts(run_dir, run), "facts": run.facts, "phases": _phases(run), "job": job_words(run.facts),
        "published": run.over and run.run_id in published_runs(shared.study.places.prelabels),
        "record": json.dumps(views.record(run), indent=1, ensure_ascii=False),
    }


def _scores(schema: str, splits: Any, run: Run) -> dict[str, Any]:
    """Scores of one schema by split, with the confusion matrix of test, else val."""
    splits = splits if isinstance(splits, dict) else {}
    labels = ((run.facts.get("result") or {}).get("label_order") or {}).get(schema) or []
    shown = next((s for s in ("test", "val") if (splits.get(s) or {}).get("per_label")), None)
    m = splits.get(shown) or {}
    return {
        "schema": schema, "splits": {s: m for s, m in splits.items() if isinstance(m, dict)}, "split": shown,
        "per_label": {name: one for name, one in (m.get("per_label") or {}).items() if isinstance(one, dict)},
        **_confusion((m.get("confusion") or {}).get("cells"), labels),
    }


def _confusion(cells: Any, labels: list[str]) -> dict[str, Any]:
    count = {}
    for cell in cells or ():
        whole = isinstance(cell, list) and len(cell) == 3 and all(isinstance(x, int) and x >= 0 for x in cell)
        if whole and max(cell[:2]) < len(labels):
            count[cell[0], cell[1]] = cell[2]
    if not count:
        return {"matrix": [], "labels": [], "confusions": []}
    wrong = sorted(((n, t, p) for (t, p), n in count.items() if t != p), reverse=True)[:15]
    confusions = [(labels[t], labels[p], n) for n, t, p in wrong]
    if len(labels) > _MATRIX:
        return {"matrix": [], "labels": [], "confusions": confusions}
    rows = []
    for t, name in enumerate(labels):
        total = sum(count.get((t, p), 0) for p in range(len(labels))) or 1
        # nine steps of shade, so that no style attribute is needed
        cells_of = [(count.get((t, p), 0), -(-count.get((t, p), 0) * 9 // total), t == p) for p in range(len(labels))]
        rows.append((name, cells_of))
    return {"matrix": rows, "labels": labels, "confusions": []}


def _insight(schema: str, one: Any) -> dict[str, Any]:
    return {
        "schema": schema, "counts": one.counts, "unsure": one.unsure,
        "histogram": charts.bars(f"Confidence of the predictions for {schema}", one.histogram, x_label="confidence"),
        "calibration": charts.calibration(f"Calibration of {schema} on held-out items", one.calibration),
        "bins": one.calibration,
    }


def scripts(run_dir: Any, run: Run) -> list[tuple[str, str]]:
    """(name, text) of what this run executed: its scripts, or the commands where there are none, and its job
    message, which has nothing secret in it."""
    found = []
    for path in sorted([*run_dir.glob("*.sh"), *run_dir.glob("scripts/*")]):
        if path.is_file() and not path.is_symlink():
            found.append((str(path.relative_to(run_dir)), path.read_text("utf-8", "replace")[:200_000]))
    commands = note_of(str(run.facts.get("backend_type")), run.backend)
    if commands and not found and (run_dir / places.JOB).is_file():  # it has left the queue
        found.append(("commands", commands))
    job = run_dir / places.JOB
    if job.is_file():
        found.append((places.JOB, job.read_text("utf-8", "replace")[:200_000]))
    return found


def _phases(run: Run) -> list[tuple[str, float]]:
    """(state, seconds in it), in order."""
    marks = sorted((run.facts.get("timings") or {}).items(), key=lambda item: item[1])
    return [(name, after - at) for (name, at), (_, after) in pairwise(marks)]


def comparison(shared: Shared, one: Run, other: Run) -> dict[str, Any]:
    """Two runs, the older first: what was asked, how good, and their curves in one chart."""
    runs = sorted((one, other), key=lambda run: run.place)
    asked = [
        ("Status", [run.state for run in runs]), ("Trainer", [run.trainer for run in runs]),
        ("Schemas", [", ".join(run.schemas) for run in runs]), ("Ran on", [views.ran_on(run) for run in runs]),
        *((f"Parameter {name}", [str(run.params.get(name, "default")) for run in runs])
          for name in sorted({*runs[0].params, *runs[1].params})),
        *((f"Items in {name}", [str((run.facts.get("splits") or {}).get(name, "–")) for run in runs])
          for name in ("train", "val", "test", "unlabeled")),
        ("Data", [((run.facts.get("bundle") or {}).get("digest") or "–")[:12] for run in runs]),
        ("Config", [(run.facts.get("config_sha256") or "–")[:12] for run in runs]),
    ]
    return {"runs": runs, "told": [views.summary(run) for run in runs], "asked": asked,
            "scores": _side_by_side(runs), "curves": _both_curves(shared, runs)}


def _side_by_side(runs: list[Run]) -> list[dict[str, Any]]:
    both = [views.metrics(run) for run in runs]
    found = []
    for schema in [name for name in both[0] if name in both[1]]:
        for split in ("test", "val"):
            a, b = ((both[n][schema] or {}).get(split) or {} for n in (0, 1))
            rows = [(name, a.get(key), b.get(key)) for name, key in _METRICS if key in a or key in b]
            labels = [*dict.fromkeys([*(a.get("per_label") or {}), *(b.get("per_label") or {})])]
            rows += [(f"F1 of {label}", _f1(a, label), _f1(b, label)) for label in labels[:100]]
            if rows:
                found.append({"schema": schema, "split": split, "rows": [(n, x, y, _gain(x, y)) for n, x, y in rows],
                              "n": (a.get("n"), b.get("n"))})
    return found


_METRICS = (("Accuracy", "accuracy"), ("Macro-F1", "macro_f1"), ("Calibration error", "ece"))


def _f1(m: dict[str, Any], label: str) -> Any:
    return ((m.get("per_label") or {}).get(label) or {}).get("f1")


def _gain(a: Any, b: Any) -> str:
    if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
        return ""
    return f"{b - a:+.3f}"


def _both_curves(shared: Shared, runs: list[Run]) -> list[tuple[str, Markup, list[str]]]:
    series = [_series(shared, run) for run in runs]
    out = []
    for name in [n for n in series[0] if n in series[1]]:
        joined = {f"{split} · {run.run_id}": points for run, one in zip(runs, series, strict=True)
                  for split, points in one[name].items()}
        out.append((name, charts.lines(name, joined, x_label="minutes of training"), list(joined)))
    return out
