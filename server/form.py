"""The start form: its fields are read from each trainer's params schema, and so is what it sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..schema.errors import UserError
from ..schema.params import nested, parse_param


@dataclass(frozen=True)
class Field:
    """One parameter. ``kind``: integer, number, boolean, choice, list, text, switch (of a group of its own)."""

    name: str
    kind: str
    description: str
    default: str
    choices: tuple[str, ...] = ()
    least: Any = None
    most: Any = None
    inside: tuple[Field, ...] = field(default=())


def fields(schema: Mapping[str, Any], above: str = "") -> tuple[Field, ...]:
    """The fields of a params schema, in its order."""
    return tuple(_field(above + name, about) for name, about in (schema.get("properties") or {}).items())


def _field(name: str, about: Mapping[str, Any]) -> Field:
    types = about.get("type", "string")
    kind = next((t for t in ([types] if isinstance(types, str) else types) if t != "null"), "string")
    described = str(about.get("description", ""))
    if about.get("enum"):
        choices = tuple(str(c) for c in about["enum"] if c is not None)
        return Field(name, "choice", described, shown(about.get("default")), choices)
    if kind == "object":
        return Field(name, "switch", described, "off", ("off", "on"), inside=fields(about, f"{name}."))
    if kind == "boolean":
        return Field(name, "boolean", described, shown(about.get("default", False)), ("true", "false"))
    kind = {"array": "list", "string": "text"}.get(kind, kind)
    return Field(name, kind, described, shown(about.get("default")), (), about.get("minimum"), about.get("maximum"))


def shown(value: Any) -> str:
    """A default as it stands in a form field."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def plain_number(value: float) -> str:
    """A bound as a person would write it: 2000000, 0.5, 1e-08."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:g}"


def field_name(trainer: str, name: str) -> str:
    """Every trainer's fields have names of their own, since without JavaScript all of them are sent."""
    return f"p.{trainer}.{name}"


def sent_of(trainer: str, schema: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, str]:
    """What a form would have sent for these parameters: ``read`` the other way round."""
    return {field_name(trainer, name): text for name, text in _filled(fields(schema), params)}


def _filled(known: tuple[Field, ...], params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in known:
        value = params.get(one.name.rpartition(".")[2])
        if one.kind == "switch":
            if isinstance(value, Mapping):
                yield one.name, "on"
                yield from _filled(one.inside, value)
        elif value is not None:
            yield one.name, shown(value)


def read(trainer: str, schema: Mapping[str, Any], sent: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """(the parameters that differ from their defaults, what is wrong by form field name)."""
    pairs: list[tuple[str, Any]] = []
    wrong: dict[str, str] = {}
    _read(trainer, dict(schema), fields(schema), sent, pairs, wrong)
    return nested(pairs), wrong


def _read(
    trainer: str, schema: dict[str, Any], known: tuple[Field, ...], sent: Mapping[str, str],
    pairs: list[tuple[str, Any]], wrong: dict[str, str],
) -> None:
    for one in known:
        key = field_name(trainer, one.name)
        text = sent.get(key, "").strip()
        if one.kind == "switch":
            if text == "on":
                pairs.append((one.name, {}))
                _read(trainer, schema, one.inside, sent, pairs, wrong)
        elif text not in ("", one.default):
            try:
                pairs.append(parse_param(schema, f"{one.name}={text}"))
            except UserError as error:
                wrong[key] = error.message.removeprefix(f"{one.name}: ")
