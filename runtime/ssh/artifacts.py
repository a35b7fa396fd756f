"""Brings the model files home: a manifest, then a tar, read as they come and trusted in nothing.

They arrive whole or not at all: unpacked beside their place, and renamed when the last byte was right.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import places
from ..bounds import bounds
from ..launchers import Desk
from .connection import remote_command
from .explain import failure
from .line import Line
from .plan import script
from .talk import Result, SshError, Talk, new_mark, opening
from .untar import BadArchive, CutShort, safe_name, untar

_MOST_FILES = 100_000
_PIPE = 1 << 20
_STEP_S = 0.5


@dataclass
class Got:
    """``whole`` when nothing is left on the host that somebody may want."""

    warnings: list[str] = field(default_factory=list)
    whole: bool = True


@dataclass(frozen=True)
class Manifest:
    """What the sender announced: files that come, and files above the limit that stay (name -> bytes)."""

    sizes: Mapping[str, int]
    left: Mapping[str, int]

    @classmethod
    def of(cls, said: Result, limit: int) -> Manifest:
        """Raises BadArchive for an announcement that nobody would make in good faith."""
        sizes, left = _sizes(said.all("file")), _sizes(said.all("left"))
        if len(sizes) + len(left) > _MOST_FILES:
            raise BadArchive("too many files were announced")
        if any(size > limit for size in sizes.values()):
            raise BadArchive("a file above max_artifact_mb was announced")
        return cls(sizes, left)

    @property
    def total(self) -> int:
        return sum(self.sizes.values())


def _sizes(lines: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in lines:
        words = re.fullmatch(r"(\d{1,18}) (.+)", line)
        name = safe_name(words[2]) if words else ""
        if words is None or not name or name in found:
            raise BadArchive("the list of the files cannot be read")
        found[name] = int(words[1])
    return found


def fetch(line: Line, desk: Desk, facts: Mapping[str, Any]) -> Got:
    """Copies the artifact directory. A copy that fails is a warning; raises ConnectionLost when trying again may do."""
    host = str(facts["host"])
    fresh = desk.run_dir / f".{places.ARTIFACTS}.tmp"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        return _fetch(line, desk, facts, host, fresh)
    except _Stalled:
        return Got([f"The copy from {host} sent nothing for {bounds().copy_stall_s:g} s: "
                    "the predictions are saved, only model files are missing"], whole=False)
    except BadArchive as error:
        return Got([f"the model files from {host} were refused: {error}"], whole=False)
    except OSError as error:
        return Got([f"the model files from {host} could not be stored: {error.strerror or error}"], whole=False)
    except SshError as error:
        raise failure(line.ssh, error) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


class _Stalled(Exception):
    """No byte for too long."""


class _Progress:
    """The step line, not more often than one can read it, and right also when nothing comes any more."""

    def __init__(self, desk: Desk, host: str):
        self._desk, self._host = desk, host
        self._done = self._told = self._total = 0
        self._shown = 0.0

    def begin(self, total: int) -> None:
        self._total = total

    def add(self, count: int) -> None:
        self._done += count

    def look(self) -> None:
        """Called several times a second, whether something comes or not."""
        self._desk.check()
        now = time.monotonic()
        if self._done != self._told and now - self._shown > _STEP_S:
            self._shown, self._told = now, self._done
            self._desk.step(f"copying the model from {self._host}: {_mb(self._done)} of {_mb(self._total)} MB")


def _fetch(line: Line, desk: Desk, facts: Mapping[str, Any], host: str, fresh: Path) -> Got:
    limit = int(facts["max_artifact_mb"] * 2**20)
    text = script(desk.run_dir, "send_artifacts.sh")
    mark = new_mark()
    argv = line.ssh.argv(command=remote_command(len(text.encode("utf-8"))))
    desk.step(f"copying the model from {host}")
    progress = _Progress(desk, host)
    with Talk(argv, line.ssh.environment(), opening(text, mark, ()), check=progress.look) as talk:
        stall = bounds().copy_stall_s
        try:
            talk.expect(mark, time.monotonic() + stall)
            said = talk.answer(mark, time.monotonic() + stall)
        except SshError as error:
            if error.timed_out:
                raise _Stalled from None
            raise
        if said.all("error"):
            return Got([f"the model files stay on {host}: {said.one('error')}"], whole=False)
        manifest = Manifest.of(said, limit)
        desk.log(*(f"left on {host}: {name}, {_mb(size)} MB, above max_artifact_mb"
                   for name, size in manifest.left.items()))
        if not manifest.sizes:
            told = [] if manifest.left else ["the worker left no model files"]
            return Got(told, whole=not manifest.left)
        free = shutil.disk_usage(desk.run_dir).free
        if manifest.total > free:
            return Got([f"the model files stay on {host}: {_mb(manifest.total)} MB, and {_mb(free)} MB are free here"],
                       whole=False)
        fresh.mkdir(mode=0o700)
        progress.begin(manifest.total)
        _copy(talk, progress, manifest, fresh, stall)
        _why_it_ended(talk)
    final = desk.run_dir / places.ARTIFACTS
    shutil.rmtree(final, ignore_errors=True)
    fresh.rename(final)
    desk.log(f"copied the model from {host}: {len(manifest.sizes)} files, {_mb(manifest.total)} MB")
    return Got(whole=not manifest.left)


def _copy(talk: Talk, progress: _Progress, manifest: Manifest, fresh: Path, stall: float) -> None:
    with contextlib.suppress(OSError, AttributeError):  # Linux: fewer, longer reads
        assert talk.process.stdout is not None
        fcntl.fcntl(talk.process.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)

    def read(most: int) -> bytes:
        try:
            return talk.read(most, time.monotonic() + stall)
        except SshError as error:
            if error.timed_out:
                raise _Stalled from None
            raise

    try:
        untar(read, fresh, manifest.sizes, progress.add)
    except CutShort:
        _why_it_ended(talk)
        raise


def _why_it_ended(talk: Talk) -> None:
    """An ssh that lost its connection, or was killed, is the weather and not the sender's doing."""
    code = talk.ended(time.monotonic() + bounds().copy_stall_s)
    if code is None or code == 255 or code < 0:
        raise SshError("the copy broke off", stderr=talk.stderr(), code=code)
    if code != 0:
        raise BadArchive(f"the sender ended with exit code {code}")


def _mb(count: int) -> int:
    return max(1, round(count / 1e6)) if count else 0
