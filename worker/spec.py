"""Reading spec.json, and checking a trainer's parameters against its schema."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

from . import protocol
from .failures import BadSpec

SPEC_VERSION = 1
KINDS = ("nominal", "ordinal", "multilabel")


@dataclass(frozen=True)
class SchemaSpec:
    """One annotation scheme to train on; ``labels`` are in the scheme's order."""

    name: str
    annotation_type: str
    kind: str
    labels: Tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    max_ram_mb: Optional[float] = None
    num_threads: Optional[int] = None
    device: str = "auto"


@dataclass(frozen=True)
class Orphan:
    """How the worker notices that nobody is there any more; all off under on_disconnect "finish"."""

    stdin: bool = False
    lease_s: Optional[float] = None
    slack_s: float = 60.0


@dataclass(frozen=True)
class Spec:
    """What to train. Paths are absolute; ``params`` are as written, defaults not yet applied."""

    run_id: str
    attempt: int
    trainer: str
    schemas: Tuple[SchemaSpec, ...]
    bundle_dir: str
    workdir: str
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    include_unlabeled: bool = False
    limits: Limits = Limits()
    grace_seconds: float = protocol.GRACE_SECONDS
    on_disconnect: str = "stop"
    orphan: Orphan = Orphan()
    earlier: Optional[str] = None


def read_spec(path: str) -> Spec:
    """The Spec in the file at path. BadSpec naming the file, or the key, that is wrong."""
    try:
        with open(path, encoding="utf-8") as f:
            raw = json.load(f)
    except OSError as error:
        raise BadSpec("cannot read %s: %s" % (path, error.strerror or error)) from error
    except ValueError as error:
        raise BadSpec("%s is not JSON: %s" % (path, error)) from error
    return check_spec(raw, os.path.dirname(os.path.abspath(path)))


def check_spec(raw: Any, directory: str) -> Spec:
    """The Spec of a decoded document; its relative paths are relative to ``directory``."""
    if not isinstance(raw, dict):
        raise BadSpec("the spec must be a JSON object")
    if raw.get("v") != SPEC_VERSION:
        raise BadSpec("spec version %r is not known here (this worker knows %d)" % (raw.get("v"), SPEC_VERSION))
    limits = _get(raw, "limits", dict, {})
    orphan = _get(raw, "orphan", dict, {})
    on_disconnect = _get(raw, "on_disconnect", str, "stop")
    if on_disconnect not in ("stop", "finish"):
        raise BadSpec("on_disconnect: %r is neither stop nor finish" % on_disconnect)
    watched = on_disconnect == "stop"
    earlier = _get(raw, "earlier", str, None)
    return Spec(
        run_id=_get(raw, "run_id", str),
        attempt=_get(raw, "attempt", int, 1, least=1),
        trainer=_get(raw, "trainer", str),
        schemas=_schemas(raw),
        bundle_dir=os.path.join(directory, _get(raw, "bundle_dir", str, protocol.BUNDLE_DIR)),
        workdir=os.path.join(directory, _get(raw, "workdir", str, ".")),
        params=_get(raw, "params", dict, {}),
        seed=_get(raw, "seed", int, 0),
        include_unlabeled=_get(raw, "include_unlabeled", bool, False),
        limits=Limits(
            max_ram_mb=_get(limits, "max_ram_mb", float, None, least=1, where="limits."),
            num_threads=_get(limits, "num_threads", int, None, least=1, where="limits."),
            device=_get(limits, "device", str, "auto", where="limits.") or "auto",
        ),
        grace_seconds=_get(raw, "grace_seconds", float, protocol.GRACE_SECONDS, least=0),
        on_disconnect=on_disconnect,
        orphan=Orphan(
            stdin=watched and _get(orphan, "stdin", bool, False, where="orphan."),
            lease_s=_get(orphan, "lease_s", float, None, least=0, where="orphan.") if watched else None,
            slack_s=_get(orphan, "slack_s", float, 60.0, least=0, where="orphan."),
        ),
        earlier=os.path.join(directory, earlier) if earlier else None,
    )


_MISSING = object()


def _get(raw: Mapping[str, Any], key: str, kind: type, default: Any = _MISSING, least: Optional[float] = None,
         where: str = "") -> Any:
    value: Any = raw.get(key)
    if value is None:
        if default is _MISSING:
            raise BadSpec("%s%s is missing" % (where, key))
        return default
    wanted: Any = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise BadSpec("%s%s: %r is not %s" % (where, key, value, _WORDS[kind]))
    if least is not None and not value >= least:
        raise BadSpec("%s%s: %r is less than %r" % (where, key, value, least))
    return value


_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object",
          list: "a list"}


def _schemas(raw: Mapping[str, Any]) -> Tuple[SchemaSpec, ...]:
    found = []
    for n, entry in enumerate(_get(raw, "schemas", list)):
        where = "schemas[%d]." % n
        if not isinstance(entry, dict):
            raise BadSpec("schemas[%d] must be an object" % n)
        labels = _get(entry, "labels", list, where=where)
        if not all(isinstance(label, str) for label in labels):
            raise BadSpec("%slabels must all be texts" % where)
        if len(set(labels)) != len(labels):
            raise BadSpec("%slabels has a label twice" % where)
        for label in labels:
            _require_whole(label, where + "labels")
        kind = _get(entry, "kind", str, where=where)
        if kind not in KINDS:
            raise BadSpec("%skind: %r is none of %s" % (where, kind, ", ".join(KINDS)))
        name = _get(entry, "name", str, where=where)
        _require_whole(name, where + "name")
        found.append(SchemaSpec(name, _get(entry, "annotation_type", str, "", where=where), kind, tuple(labels)))
    if not found:
        raise BadSpec("schemas is empty: nothing to train")
    if len({s.name for s in found}) != len(found):
        raise BadSpec("schemas names a scheme twice")
    return tuple(found)


def _require_whole(text: str, where: str) -> None:
    """BadSpec for half of a surrogate pair: a model's files, which are UTF-8, could not hold it."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise BadSpec("%s: %s has half of a character, which no file of a model can hold" % (where, ascii(text)),
                      "write it anew")


# --- parameters ---------------------------------------------------------------------------------

_TYPES = {
    "string": (str,), "number": (int, float), "boolean": (bool,), "object": (dict,), "array": (list,),
    "integer": (int,), "null": (type(None),),
}


def check_params(schema: Mapping[str, Any], params: Mapping[str, Any], where: str = "params") -> Dict[str, Any]:
    """The params with the schema's defaults applied. BadSpec naming the first one that does not fit.

    ``schema`` is a JSON Schema object that keeps to: type, properties, additionalProperties false,
    default, enum, minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, items, description.
    """
    properties = schema.get("properties", {})
    unknown = sorted(set(params) - set(properties))
    if unknown:
        raise BadSpec("%s.%s is not a parameter of this trainer" % (where, unknown[0]),
                      "its parameters are %s" % ", ".join(sorted(properties)))
    result = {}
    for name, rule in properties.items():
        if name in params:
            result[name] = _check_value(rule, params[name], "%s.%s" % (where, name))
        elif "default" in rule:
            result[name] = rule["default"]
        elif name in schema.get("required", ()):
            raise BadSpec("%s.%s is missing" % (where, name))
    return result


def _check_value(rule: Mapping[str, Any], value: Any, where: str) -> Any:
    kinds = rule.get("type")
    kinds = [kinds] if isinstance(kinds, str) else (kinds or [])
    if kinds and not any(_is(value, kind) for kind in kinds):
        raise BadSpec("%s: %r is not of type %s" % (where, value, " or ".join(kinds)))
    if "enum" in rule and value not in rule["enum"]:
        raise BadSpec("%s: %r is none of %s" % (where, value, ", ".join(map(str, rule["enum"]))))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not abs(value) <= sys.float_info.max:        # the libraries compute with them as floats
            raise BadSpec("%s: %s is not a finite number" % (where, str(value)[:20]))
        _check_bounds(rule, value, where)
        if "integer" in kinds and "number" not in kinds and isinstance(value, float):
            return int(value)           # 2.0 is a whole number, and ranges take none with a point
    if isinstance(value, str):
        _require_whole(value, where)
        if len(value) < rule.get("minLength", 0):
            raise BadSpec("%s must not be empty" % where)
    if isinstance(value, dict) and "properties" in rule:
        return check_params(rule, value, where)
    if isinstance(value, list) and "items" in rule:
        return [_check_value(rule["items"], v, "%s[%d]" % (where, n)) for n, v in enumerate(value)]
    return value


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind in ("integer", "number"):
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _check_bounds(rule: Mapping[str, Any], value: float, where: str) -> None:
    for key, fits, words in (
        ("minimum", lambda a, b: a >= b, "less than"),
        ("maximum", lambda a, b: a <= b, "more than"),
        ("exclusiveMinimum", lambda a, b: a > b, "not more than"),
        ("exclusiveMaximum", lambda a, b: a < b, "not less than"),
    ):
        if key in rule and not fits(value, rule[key]):
            raise BadSpec("%s: %r is %s %r" % (where, value, words, rule[key]))
