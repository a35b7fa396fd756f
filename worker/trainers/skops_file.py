"""Models in skops files: a zip of arrays and JSON, no pickle; the same model is the same bytes."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from typing import Any, Dict, List


def import_skops() -> Any:
    """skops.io, imported without torch.

    It lists every estimator by importing all of scikit-learn, array_api_compat.torch included, and so
    the whole of an installed torch: 200 MiB and seconds, for nothing (seen in skops 0.16, scikit-learn 1.9).
    A None in sys.modules would not do: scipy takes that for a torch that is there.
    """
    hiding = _NoTorch()
    sys.meta_path.insert(0, hiding)
    try:
        import skops.io
    finally:
        sys.meta_path.remove(hiding)
    return skops.io


class _NoTorch:
    """An import finder to which there is no torch."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


def settle(path: str) -> None:
    """Writes the skops file anew with names that count up and one fixed time.

    skops names its members by memory address and stamps them with the clock, so that the same model
    would never be the same file twice. Seen in skops 0.10 to 0.16.
    """
    with zipfile.ZipFile(path) as old:
        schema = json.loads(old.read("schema.json"))
        names: Dict[str, str] = {}
        ids: Dict[int, int] = {}
        order: List[str] = []

        def visit(node: Any) -> None:
            if isinstance(node, dict):
                if isinstance(node.get("__id__"), int):
                    node["__id__"] = ids.setdefault(node["__id__"], len(ids) + 1)
                file = node.get("file")
                if isinstance(file, str) and file in old.NameToInfo:
                    if file not in names:
                        names[file] = "%d%s" % (len(names) + 1, os.path.splitext(file)[1])
                        order.append(file)
                    node["file"] = names[file]
                for value in node.values():
                    visit(value)
            elif isinstance(node, list):
                for value in node:
                    visit(value)

        visit(schema)
        temporary = path + ".tmp"
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as new:
            contents = [(names[f], old.read(f)) for f in order]
            contents.append(("schema.json", json.dumps(schema, sort_keys=True).encode()))
            for name, data in contents:
                new.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    os.replace(temporary, path)
