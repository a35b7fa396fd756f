"""What a JSON Schema cannot say about ``gpus``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .findings import NOTE, WARNING
from .near import nearest
from .nodes import SCALAR, Node
from .scalars import NotThat, as_integer
from .walk import BAD
from .words import quoted

if TYPE_CHECKING:
    from .backend_rules import Entry


def check_gpus(entry: Entry) -> None:
    node, value = entry.node.get("gpus"), entry.given("gpus")
    if node is None or value is None:
        return
    if node.kind == SCALAR:
        numbers = gpu_text(entry, node, value)
    else:
        if not value:
            entry.say("gpus", "gpus is an empty list", "write gpus: none to hide every GPU, or gpus: auto")
        numbers = [gpu_number(entry, text, f"gpus[{i}]", node.value[i])
                   for i, text in enumerate(value) if text is not BAD]
    named = [n for n in numbers if n]
    if len(set(named)) < len(named):
        entry.say("gpus", "gpus names a GPU twice")
    entry.values["gpus"] = ",".join(named) or "auto"
    if named and named != ["auto"] and entry.given("min_free_gpu_mb") is not None:
        entry.say("min_free_gpu_mb", "min_free_gpu_mb has no effect: it is for gpus: auto alone", "", NOTE)


def gpu_text(entry: Entry, node: Node, text: str) -> list[str]:
    if text in ("auto", "none"):
        return [text]
    if node.plain and text[:1].isdigit() and "," not in text:
        try:
            number = as_integer(text)
        except NotThat:
            pass
        else:
            entry.say("gpus", f'gpus is {text} without quotes: it pins GPU number {number}, whatever '
                      f'else runs there', f'write gpus: "{number}" if you mean that, or gpus: auto for one free GPU',
                      WARNING)
            return [str(number)]
    near = nearest(text, ("auto", "none"))
    if near or not text.strip():
        entry.say("gpus", f"gpus is {quoted(text)}", f"did you mean {near}?" if near else
                  'write auto, none, "1", "0,1" or a list of numbers')
        return []
    return [gpu_number(entry, part.strip(), "gpus", node) for part in text.split(",")]


def gpu_number(entry: Entry, text: str, key: str, node: Node) -> str:
    if text.startswith(("GPU-", "MIG-")) and text[4:].replace("-", "").replace("/", "").isalnum():
        return text
    try:
        if not 0 <= as_integer(text) <= 9999:
            raise NotThat
    except NotThat:
        entry.say(key, f"{quoted(text)} is not the number of a GPU", 'write auto, none, "1", "0,1" or a list of '
                  "numbers, as nvidia-smi counts them", at=node)
        return ""
    return str(as_integer(text))
