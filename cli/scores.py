"""Held-out scores as text: what a trained run ends with in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .common import table
from .main import as_called

#: A confusion matrix wider than this is not printed; the run's record has it.
_MAX_LABELS = 12
_WEAKEST = 8


def scores(run_facts: Mapping[str, Any]) -> str:
    """Scores and confusion matrices of every schema of a run; empty when there is no result."""
    result = run_facts.get("result") or {}
    metrics = result.get("metrics") or {}
    order = result.get("label_order") or {}
    parts = []
    for schema, splits in metrics.items():
        if isinstance(splits, Mapping):
            parts.append(_schema(schema, splits, order.get(schema) or []))
    return "\n\n".join(parts)


def _schema(schema: str, splits: Mapping[str, Any], labels: list[str]) -> str:
    rows = [["held-out", "items", "accuracy", "macro-F1", "calibration error"]]
    notes, matrix, per_label = [], "", ""
    for split, m in splits.items():
        if not isinstance(m, Mapping):
            continue
        rows.append([split, str(m.get("n", "?")), _number(m, "accuracy"), _number(m, "macro_f1"), _number(m, "ece")])
        if m.get("note"):
            notes.append(f"{split}: {m['note']}")
        if m.get("per_label") and (split == "test" or not per_label):
            per_label = _per_label(split, m["per_label"])
            matrix = _confusion(split, m, labels)
    return "\n\n".join(part for part in (f"{schema}\n" + table(rows), "\n".join(notes), per_label, matrix) if part)


def _number(metrics: Mapping[str, Any], key: str) -> str:
    value = metrics.get(key)
    return f"{value:.3f}" if isinstance(value, (int, float)) else "-"


def _per_label(split: str, labels: Mapping[str, Any]) -> str:
    rows = [[f"label ({split})", "items", "precision", "recall", "F1"]]
    known = [(label, m) for label, m in labels.items() if isinstance(m, Mapping)]
    shown, rest = known, ""
    if len(known) > _MAX_LABELS:
        met = [(label, m) for label, m in known if m.get("n")]
        shown = sorted(met, key=lambda item: item[1].get("f1") or 0)[:_WEAKEST]
        rest = as_called(
            f"\nthe {len(shown)} weakest of {len(known)} labels; potato training show RUN --json has them all"
        )
    for label, m in shown:
        rows.append([label, str(m.get("n", "?")), *(_number(m, key) for key in ("precision", "recall", "f1"))])
    return table(rows) + rest


def _confusion(split: str, m: Mapping[str, Any], labels: list[str]) -> str:
    cells = (m.get("confusion") or {}).get("cells")
    if not cells or not labels:
        return ""
    if len(labels) > _MAX_LABELS:
        worst = sorted((c for c in cells if c[0] != c[1]), key=lambda c: -c[2])[:5]
        lines = [f"  {labels[t]} taken for {labels[p]}: {n}" for t, p, n in worst]
        return "most frequent confusions\n" + "\n".join(lines) if lines else ""
    count = {(t, p): n for t, p, n in cells}
    names = [label if len(label) <= 16 else label[:15] + "…" for label in labels]
    rows = [[f"confusion ({split})", *(f"→ {name}" for name in names)]]
    for t, name in enumerate(names):
        rows.append([name, *(str(count.get((t, p), 0)) for p in range(len(labels)))])
    return table(rows)
