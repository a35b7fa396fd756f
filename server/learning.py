"""The learning curve of a run's trainer, as `potato training curve` left it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime import curve
from . import charts

if TYPE_CHECKING:
    from ..runtime.places import Places
    from ..runtime.store import Run

_LINES = {"accuracy": "accuracy", "low": "95 % from", "high": "to"}
_MOST = 50


def curves(where: Places, run: Run) -> list[dict[str, Any]]:
    """For each schema of the run that has a curve of this trainer: its chart and what it says."""
    kept = curve.read(where).get(run.trainer)
    kept = kept if isinstance(kept, dict) else {}
    by_schema = kept.get("schemas")
    found = []
    by_schema = by_schema if isinstance(by_schema, dict) else {}
    for schema in run.schemas:
        one: Any = by_schema.get(schema)
        points = one.get("points") if isinstance(one, dict) else None
        drawn = [p for p in points if _whole(p)][:_MOST] if isinstance(points, list) else []
        if drawn:
            series = {name: [(p["train"], p[key]) for p in drawn] for key, name in _LINES.items()}
            title = f"Accuracy of {schema} by labelled train items"
            chart = charts.lines(title, series, x_label="labelled train items", unit_y=True)
            found.append({"schema": schema, "words": str(one.get("words", "")), "chart": chart, "points": drawn,
                          "made": kept["made"] if isinstance(kept.get("made"), (int, float)) else None})
    return found


def _whole(point: Any) -> bool:
    return isinstance(point, dict) and all(isinstance(point.get(k), (int, float)) for k in ("train", *_LINES))
