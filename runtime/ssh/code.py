"""The code that travels: the worker's package and nothing else, named by the hash of its bytes."""

from __future__ import annotations

import functools
import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

#: Every file gets this time, so that the same code is the same bytes.
_WHEN = 1_600_000_000
_BLOCK = 1 << 16


@functools.cache
def files() -> dict[str, bytes]:
    """Name -> bytes, sorted: ``potato_training/__init__.py`` and ``potato_training/worker/...``."""
    package = Path(__file__).parents[2] / "worker"
    found = {}
    for path in package.rglob("*.py"):
        found[f"potato_training/worker/{path.relative_to(package).as_posix()}"] = path.read_bytes()
    import potato_training

    assert potato_training.__file__ is not None
    found["potato_training/__init__.py"] = Path(potato_training.__file__).read_bytes()
    return dict(sorted(found.items()))


@functools.cache
def code_hash() -> str:
    """32 hex digits."""
    digest = hashlib.sha256()
    for name, data in files().items():
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()[:32]


def archive() -> Iterator[bytes]:
    """A tar in pieces. Its last member has the hash for its name and lists the others: by it a copy is told that broke
    off, or has lost files since."""
    listed = "".join(f"{len(data)} {name}\n" for name, data in files().items())
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in (*files().items(), (code_hash(), listed.encode())):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(data), _WHEN, 0o600
            tar.addfile(member, io.BytesIO(data))
    data = whole.getvalue()
    return (data[at:at + _BLOCK] for at in range(0, len(data), _BLOCK))
