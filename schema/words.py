"""How keys, values and types are said in messages."""

from __future__ import annotations

from .nodes import SCALAR, SEQUENCE, Node
from .scalars import FALSES, TRUES

_NAMES = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text",
          "array": "a list", "object": "a mapping of keys to values", "null": "nothing (null)"}


def below(path: str, key: str) -> str:
    if not key.isprintable() or len(key) > 80:
        key = quoted(key)
    return f"{path}.{key}" if path else key


def type_names(types) -> str:
    if isinstance(types, str):
        return _NAMES[types]
    return " or ".join(_NAMES[t] for t in types if t != "null")


def article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" or word == "ssh" else f"a {word}"


def quoted(text: str) -> str:
    text = "".join(c if c.isprintable() else "?" for c in text[:61])
    return f"'{text}'" if len(text) <= 60 else f"'{text[:60]}...'"


def shown(node: Node) -> str:
    if node.kind != SCALAR:
        return "a list" if node.kind == SEQUENCE else "a mapping"
    text = node.value
    bare = node.plain and text.isascii() and text.isprintable() and " " not in text and 0 < len(text) <= 60
    return text if bare else quoted(text)


def without_quotes(text: str, types, key: str) -> str:
    if ("boolean" in types and text in TRUES | FALSES) or (
        ("integer" in types or "number" in types) and text[:1].isdigit() and len(text) < 20
    ):
        return f"write it without quotes: {key}: {text}"
    if "array" in types and "\n" in text:
        return "write each line as an entry of its own, after a dash"
    if "array" in types and " " not in key:
        return f"write {key}: [{quoted(text)}]"
    return ""
