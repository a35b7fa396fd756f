"""Held-out scores as text: what a trained run ends with in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime.curve_stats import share_right
from .common import table
from .main import as_called

#: A confusion matrix wider than this is not printed; the run's record has it.
_MAX_LABELS = 12
_WEAKEST = 8


def scores(run_facts: Mapping[str, Any], manifest: Mapping[str, Any] | None = None) -> str:
    """Scores and confusion matrices of every schema of a run, and how far people agreed; empty without a result.

    ``manifest`` is that of the run's bundle.
    """
    result = run_facts.get("result") or {}
    metrics = result.get("metrics") or {}
    order = result.get("label_order") or {}
    people = ((manifest or {}).get("aggregation") or {}).get("per_schema") or {}
    parts = []
    for schema, splits in metrics.items():
        if isinstance(splits, Mapping):
            parts.append(_schema(schema, splits, order.get(schema) or [], people.get(schema) or {}))
    return "\n\n".join(parts)


def _schema(schema: str, splits: Mapping[str, Any], labels: list[str], people: Mapping[str, Any]) -> str:
    rows = [["held-out", "items", "accuracy", "95 % interval", "macro-F1", "calibration error"]]
    notes, matrix, per_label, shown = [], "", "", ""
    for split, m in splits.items():
        if not isinstance(m, Mapping):
            continue
        rows.append([
            split, str(m.get("n", "?")), _number(m, "accuracy"), _interval(m), _number(m, "macro_f1"), _number(m, "ece")
        ])
        if m.get("note"):
            notes.append(f"{split}: {m['note']}")
        if m.get("per_label") and (split == "test" or not per_label):
            shown, per_label = split, _per_label(split, m["per_label"])
            matrix = _confusion(split, m, labels)
    if shown:
        rows += _constant(splits[shown])
        notes += _doubt(shown, splits[shown])
        if not splits[shown].get("confusion"):
            notes.append("accuracy: the share of items whose labels are all right")
    head = "\n".join(line for line in (schema, agreement(people), table(rows)) if line)
    return "\n\n".join(part for part in (head, "\n".join(notes), per_label, matrix) if part)


def agreement(people: Mapping[str, Any]) -> str:
    """How far people agreed with each other, which tells how hard the question is."""
    if not people.get("annotations"):
        return ""
    n = people.get("annotators")
    words = f"{people['annotations']} answers to {people.get('items')} items by {n} annotator{'s' * (n != 1)}"
    if not isinstance(people.get("agreement"), (int, float)):
        return f"labels: {words}; no item has two answers"
    alpha = people.get("alpha")
    return (f"labels: {words}; {people.get('shared_items')} items have two or more, agreement "
            f"{people['agreement']:.3f}" + (f", alpha {alpha:.3f}" if isinstance(alpha, (int, float)) else ""))


def _interval(m: Mapping[str, Any]) -> str:
    found = _share(m)
    return f"{found.low:.3f} to {found.high:.3f}" if found else "-"


def _share(m: Mapping[str, Any]) -> Any:
    n, accuracy = m.get("n"), m.get("accuracy")
    if not isinstance(n, int) or n < 1 or not isinstance(accuracy, (int, float)) or not 0 <= accuracy <= 1:
        return None
    return share_right(round(accuracy * n), n)


def _most_frequent(m: Mapping[str, Any]) -> tuple[str, int]:
    """The label that one does best with who always answers the same, and how often; "" where items may have several."""
    if not m.get("confusion"):
        return "", 0
    counts = _counts(m)
    label = max(counts, key=lambda k: counts[k], default="")
    return label, counts.get(label, 0)


def _counts(m: Mapping[str, Any]) -> dict[str, int]:
    labels = m["per_label"].items()
    return {k: v["n"] for k, v in labels if isinstance(v, Mapping) and isinstance(v.get("n"), int) and v["n"] > 0}


def _constant(m: Mapping[str, Any]) -> list[list[str]]:
    """The row of whoever always answers the same."""
    label, right = _most_frequent(m)
    n = m.get("n")
    if not right or not isinstance(n, int):
        return []
    f1 = 2 * right / (n + right) / len(_counts(m))
    return [[f'always "{_short(label)}"', str(n), f"{right / n:.3f}", "", f"{f1:.3f}", ""]]


def _doubt(split: str, m: Mapping[str, Any]) -> list[str]:
    found, (label, right) = _share(m), _most_frequent(m)
    if not found or not right or found.low > right / m["n"]:
        return []
    return [f'{split}: with {m["n"]} items, not surely better than always answering "{label}"']


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
    names = [_short(label) for label in labels]
    rows = [[f"confusion ({split})", *(f"→ {name}" for name in names)]]
    for t, name in enumerate(names):
        rows.append([name, *(str(count.get((t, p), 0)) for p in range(len(labels)))])
    return table(rows)


def _short(label: str) -> str:
    return label if len(label) <= 16 else label[:15] + "…"


def published(report: Mapping[str, Any] | None) -> str:
    """What became of a run's predictions as prelabels; empty without a report."""
    if not report:
        return ""
    rest = ", ".join(
        f"{value} {key.replace('_', ' ')}"
        for key, value in report.items()
        if isinstance(value, int) and value and key not in ("published", "read")
    )
    return f"{report.get('published', 0)} published" + (f" ({rest})" if rest else "")
