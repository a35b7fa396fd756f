"""A trainer's parameters, checked against the JSON Schema that the trainer gives of them."""

from __future__ import annotations

from .errors import UserError
from .findings import Finding
from .near import nearest
from .nodes import SCALAR, Node, node_of
from .walk import BAD, Walker


def check_params(schema: dict, params: dict) -> list[Finding]:
    """What is wrong with ``params`` (plain values). Their paths begin with the parameter's name."""
    walker = Walker(schema)
    walker.object(node_of(params), walker.resolve(schema), "")
    return walker.findings


def typed_params(schema: dict, params: dict) -> dict:
    """``params`` in the types that the schema wants (``2.0`` -> 2), without defaults; UserError when one is wrong."""
    walker = Walker(schema)
    values = walker.object(node_of(params), walker.resolve(schema), "")
    if walker.findings:
        first = walker.findings[0]
        raise UserError(said(first), first.hint)
    return values


def said(finding: Finding) -> str:
    """What is wrong with which parameter, its name said once: messages begin with the last part of it."""
    last = finding.path.rpartition(".")[2]
    if finding.message.startswith(last + " "):
        return finding.path + finding.message[len(last):]
    return f"{finding.path}: {finding.message}"


def with_defaults(schema: dict, params: dict) -> dict:
    """``params`` with the schema's default for each that is absent; None where there is none."""
    walker = Walker(schema)
    return walker.filled(params, schema)


def parse_param(schema: dict, text: str) -> tuple[str, object]:
    """`epochs=3` -> ("epochs", 3), in the type that the schema wants; `lora.r=8` -> ("lora.r", 8).

    Lists and mappings are written as JSON or as in YAML. UserError for a name that the trainer does not have or a
    wrong value, and for none: what a script meant to fill in is not silently left to the default.
    """
    name, equals, written = text.partition("=")
    if not equals or not name:
        raise UserError(f"--param {text}: a parameter is written name=value", "for instance --param epochs=3")
    walker = Walker(schema)
    prop = walker.resolve(schema)
    for part in name.split("."):
        known = prop.get("properties", {})
        if part not in known and prop.get("additionalProperties", True) is False:
            near = nearest(part, known)
            raise UserError(f"there is no parameter {name}", f"did you mean {near}?" if near else
                            "the parameters are " + (", ".join(known) or "none"))
        prop = walker.resolve(known.get(part, {}))
    types = prop.get("type", "")
    if not written.strip() and "null" in types and "array" not in types:
        raise UserError(f"{name} is empty", "give it a value or leave it out")
    value = walker.walk(_node(written, prop), prop, name, name.rpartition(".")[2])
    if walker.findings or value is BAD:
        first = walker.findings[0]
        raise UserError(said(first), first.hint or _hint_of_mapping(prop, name))
    return name, value


def nested(pairs: list[tuple[str, object]]) -> dict:
    """Pairs of parse_param as one mapping: ("lora.r", 8) -> {"lora": {"r": 8}}. A later pair wins."""
    out: dict = {}
    for name, value in pairs:
        place = out
        *above, last = name.split(".")
        for part in above:
            inner = place.get(part)
            if not isinstance(inner, dict):
                inner = place[part] = {}
            place = inner
        place[last] = value
    return out


def _node(written: str, prop: dict) -> Node:
    types = prop.get("type", "")
    if written[:1] in ("[", "{") and "string" not in types:
        import json

        try:
            return node_of(json.loads(written))
        except ValueError:
            found = _as_yaml(written)
            if found is not None:
                return found
    if written[:1] != "[" and "array" in types and "string" not in types:
        return node_of([word for word in written.split(",") if word])
    return Node("scalar", written, plain=True)


def _as_yaml(written: str) -> Node | None:
    """A list or a mapping as config.yaml has them; None when it is none, or not a plain one."""
    from .reading import Unreadable, parse

    try:
        root, findings = parse(f"value: {written}".encode("utf-8", "surrogatepass"))
    except Unreadable:
        return None
    found = root.get("value")
    return None if findings or found is None or found.kind == SCALAR or len(root.value) > 1 else found


def _hint_of_mapping(prop: dict, name: str) -> str:
    first = next(iter(prop.get("properties", {})), None)
    if "object" not in prop.get("type", "") or first is None:
        return ""
    return f"""write '{name}={{{first}: VALUE}}', or {name}.{first}=VALUE"""
