"""Writing files so that a reader sees the whole of one or nothing, and the names of model directories."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Dict, Iterable, List, Union


def write_whole(path: str, data: Union[str, bytes]) -> None:
    """Writes bytes (or text as UTF-8) at path under another name, fsynced, then renamed. OSError when it cannot."""
    if isinstance(data, str):
        data = data.encode("utf-8")
    temporary = "%s.tmp" % path
    with open(temporary, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def write_json(path: str, value: Any) -> None:
    """Writes a JSON document with sorted keys: the same value is the same bytes."""
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
    write_whole(path, text + "\n")


def directory_names(names: Iterable[str]) -> Dict[str, str]:
    """{name: directory name} for names that are data: no separators, no leading dot, no two alike.

    A name that had to be changed, or that differs from an earlier one in case only (the copy may
    land on a file system that does not tell them apart), gets a short digest of itself.
    """
    taken = set()
    result = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".")[:80] or "schema"
        if plain != name or plain.lower() in taken:
            plain = "%s-%s" % (plain, hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8])
        taken.add(plain.lower())
        result[name] = plain
    return result


def list_files(directory: str) -> List[str]:
    """The files below directory as sorted relative paths with "/"."""
    found = []
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), directory)
            found.append(path.replace(os.sep, "/"))
    return sorted(found)


def digest_of_file(path: str) -> str:
    """SHA-256 of the file's bytes, in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def digest_of_directory(directory: str) -> str:
    """SHA-256 over the names and contents of the files below directory: a model's version."""
    digest = hashlib.sha256()
    for name in list_files(directory):
        content = digest_of_file(os.path.join(directory, *name.split("/")))
        digest.update(("%s %s\n" % (content, name)).encode("utf-8"))
    return digest.hexdigest()
