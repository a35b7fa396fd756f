"""The card of a pushed model: what it is, what it was trained on, how good it is, and how to load it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any

from ..runtime.store import Run
from . import views


def card(run: Run, repo: str, files: list[str]) -> str:
    """README.md of the repository. Names from outside are quoted in the head and escaped in the text."""
    transformers = any(path.endswith(".safetensors") for path in files)
    head = {
        "library_name": "transformers" if transformers else "sklearn",
        "pipeline_tag": "text-classification", "tags": ["potato-training", run.trainer, "text-classification"],
    }
    result = run.facts.get("result") or {}
    out = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", "",
           f"# {_text(repo.partition('/')[2])}", "",
           f"Trained by potato-training run `{run.run_id}` with `{_text(run.trainer)}` on annotations made in Potato.",
           "", "| | |", "| --- | --- |"]
    facts: list[tuple[str, Any]] = [
        ("data digest", (run.facts.get("bundle") or {}).get("digest")),
        ("config digest", run.facts.get("config_sha256")),
        ("items", ", ".join(f"{n} {name}" for name, n in (run.facts.get("splits") or {}).items())),
        ("parameters", ", ".join(f"{k} = {v}" for k, v in run.params.items()) or "defaults"),
        ("packages", ", ".join(f"{k} {v}" for k, v in (run.facts.get("software") or {}).items())),
    ]
    out += [f"| {name} | {_text(value)} |" for name, value in facts if value]
    for schema, splits in views.metrics(run).items():
        labels = (result.get("label_order") or {}).get(schema) or ()
        out += ["", f"## {_text(schema)}", "", "Labels: " + ", ".join(map(_text, labels)), "",
                "| held-out | items | accuracy | macro-F1 | calibration error |", "| --- | --- | --- | --- | --- |"]
        for split, m in (splits or {}).items():
            cells = [m.get("n"), *(_number(m.get(name)) for name in ("accuracy", "macro_f1", "ece"))]
            out.append(f"| {_text(split)} | " + " | ".join(str(cell) for cell in cells) + " |")
        out += _per_label(splits or {})
    return "\n".join([*out, "", "## Loading it", "", *_loading(run, repo, files, transformers)]) + "\n"


def _per_label(splits: Mapping[str, Any]) -> list[str]:
    labels = next((found for split in ("test", "val") if (found := (splits.get(split) or {}).get("per_label"))), None)
    if not labels:
        return []
    rows = [f"| {_text(label)} | {m.get('n')} | {_number(m.get('precision'))} | {_number(m.get('recall'))} | "
            f"{_number(m.get('f1'))} |" for label, m in labels.items()]
    return ["", "| label | items | precision | recall | F1 |", "| --- | --- | --- | --- | --- |", *rows]


def _loading(run: Run, repo: str, files: list[str], transformers: bool) -> list[str]:
    folders = sorted({path.partition("/")[0] for path in files if path.endswith("potato.json") and "/" in path})
    if transformers and not any(path.endswith("adapter_config.json") for path in files):
        where = f", subfolder={json.dumps(folders[0])}" if folders else ""
        return ["```python", "from transformers import AutoModelForSequenceClassification, AutoTokenizer", "",
                f'model = AutoModelForSequenceClassification.from_pretrained("{repo}"{where})',
                f'tokenizer = AutoTokenizer.from_pretrained("{repo}"{where})', "```"]
    where = f" + {json.dumps('/' + folders[0])}" if folders else ""
    return ["```python", "from huggingface_hub import snapshot_download",
            "from potato_training.worker.trainers import load", "",
            f'folder = snapshot_download("{repo}"){where}', f'model = load({json.dumps(run.trainer)}).load(folder)',
            'model.predict(["a text"])   # one probability a label, in the order above', "```"]


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, (int, float)) else "–"


def _text(value: Any) -> str:
    """Plain text in Markdown, whatever it holds."""
    text = " ".join(str(value).split())
    if re.fullmatch(r"[\w ,.=-]*", text):
        return text
    return html.escape(re.sub(r"([\\`*_{}\[\]()#+!|~$-])", r"\\\1", text), quote=False)
