"""Writes the reference of config.yaml from the JSON Schema, which is the one source of it.

    python -m potato_training.schema.describe > docs/config.md
"""

from __future__ import annotations

import json

from .check import config_schema
from .walk import Walker

TYPES = ("ssh", "slurm", "agent")

_INTRO = """\
# config.yaml

Generated from `schema/config.schema.json` by `python -m potato_training.schema.describe`; do not edit it by hand.

potato-training reads two top-level keys of a Potato project's config: `model_training` and `validation`. All other
top-level keys are Potato's own and are left alone; from them come the data files, the annotation schemes and the
place of the annotations. `potato validate` checks the file without starting anything ([validation](validation.md)).

An editor with a YAML language server completes and underlines keys when the file begins with
`# yaml-language-server: $schema=potato-config.schema.json`, after `potato schema > potato-config.schema.json`.
"""


def reference() -> str:
    """The page, in Markdown."""
    walker = Walker(config_schema())
    training = walker.root["$defs"]["model_training"]
    parts = [_INTRO, "## model_training\n", training["description"] + "\n"]
    own = {k: p for k, p in training["properties"].items() if k != "backends"}
    parts.append(_table(own, walker))
    for key, prop in own.items():
        inner = walker.resolve(prop)
        if "properties" in inner:
            parts += [f"### model_training.{key}\n", inner["description"] + "\n", _table(inner["properties"], walker)]
    backends = training["properties"]["backends"]
    names = backends["propertyNames"]["patternErrorMessage"]
    parts += ["## model_training.backends\n", f"{backends['description']} {names[0].upper()}{names[1:]}.\n",
              _kinds(walker), _backend_table(walker)]
    parts += ["## Keys that a type does not take\n", _refused(walker)]
    block = walker.root["properties"]["validation"]
    parts += ["## validation\n", block["description"] + "\n", _table(block["properties"], walker)]
    return "\n".join(parts)


def _kinds(walker: Walker) -> str:
    return "".join(f"- `{t}`: {walker.root['$defs'][t]['description']}\n" for t in TYPES)


def _table(properties: dict, walker: Walker) -> str:
    rows = ["| key | type | default | meaning | example |", "| --- | --- | --- | --- | --- |"]
    for key, prop in properties.items():
        prop = walker.resolve(prop)
        rows.append(_row(f"`{key}`", _type(prop), _default(prop), prop["description"], _example(key, prop)))
    return "\n".join(rows) + "\n"


def _backend_table(walker: Walker) -> str:
    defs = walker.root["$defs"]
    keys: dict[str, None] = {}
    for kind in ("slurm", "ssh", "agent"):
        keys.update(dict.fromkeys(defs[kind]["properties"]))
    rows = ["| key | ssh | slurm | agent | type | default | meaning | example |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for key in keys:
        takers = {t: walker.resolve(defs[t]["properties"][key]) for t in TYPES if key in defs[t]["properties"]}
        marks = [("required" if key in defs[t]["required"] else "yes") if t in takers else "" for t in TYPES]
        seen: list[dict] = []
        for kind, prop in takers.items():
            if prop not in seen:
                seen.append(prop)
                split = len({id(p) for p in takers.values()}) > 1
                shown = [m if t == kind or not split else "" for t, m in zip(TYPES, marks, strict=True)]
                rows.append(_row(f"`{key}`", *shown, _type(prop), _default(prop), prop["description"],
                                 _example(key, prop)))
    return "\n".join(rows) + "\n"


def _refused(walker: Walker) -> str:
    lines = []
    for kind in TYPES:
        for key, why in walker.root["$defs"][kind].get("x-refused", {}).items():
            name = "the sbatch keys" if key == "*sbatch*" else f"`{key}`"
            lines.append(f"- {name} on {kind}: {why}.")
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _type(prop: dict) -> str:
    if "enum" in prop:
        return ", ".join(f"`{v}`" for v in prop["enum"])
    types = prop["type"] if isinstance(prop["type"], list) else [prop["type"]]
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false",
             "array": "list", "object": "mapping", "null": ""}
    text = " or ".join(w for w in (words[t] for t in types) if w)
    for keyword, sign in (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<")):
        if keyword in prop:
            text += f", {sign} {prop[keyword]}"
    return text


def _default(prop: dict) -> str:
    if "x-default" in prop:
        return prop["x-default"]
    if prop.get("type") == "object" and prop.get("default") == {}:
        return ""
    return f"`{_yaml(prop['default'])}`"


def _example(key: str, prop: dict) -> str:
    return ", ".join(f"`{key}: {_yaml(value)}`" for value in prop["examples"])


def _yaml(value: object) -> str:
    """One line of flow-style YAML, as a person would write it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(v) for v in value) + "]"
    if isinstance(value, str) and (not value or value[0] in "~*&!%@0123456789-" or "," in value or ": " in value):
        return json.dumps(value)
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    print(reference(), end="")
