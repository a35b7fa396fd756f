"""python -m potato_training.worker.trainers: the trainers that are here, and their parameters, as Markdown."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, List, Mapping

from . import catalogue


def table(schema: Mapping[str, Any]) -> str:
    """The parameters of a trainer as a Markdown table; those of an object follow it, with a dot."""
    rows = ["| parameter | type | default | |", "| --- | --- | --- | --- |"]
    rows += _rows(schema.get("properties", {}), "")
    return "\n".join(rows)


def _rows(properties: Mapping[str, Any], prefix: str) -> List[str]:
    rows = []
    for name, rule in properties.items():
        kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
        kind = " or ".join(k for k in kinds if k != "null")
        if "enum" in rule:
            kind = ", ".join(rule["enum"])
        for key, sign in (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<=")):
            if key in rule:
                kind += " %s %s" % (sign, rule[key])
        default = rule.get("default")
        default = "none" if default is None else "`%s`" % json.dumps(default).strip('"')
        rows.append("| `%s%s` | %s | %s | %s |" % (prefix, name, kind, default, rule.get("description", "")))
        rows += _rows(rule.get("properties", {}), prefix + name + ".")
    return rows


def main() -> None:
    for name, info in catalogue(plugins=True).items():
        print("## %s\n\n%s\n\n%s\n" % (name, info.description, table(info.params_schema)))


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:                     # the reader (head, less) went away; there is nothing more to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
