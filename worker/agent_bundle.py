"""The bundle: fetched with resuming, unpacked by a list of what is allowed, believed only by its digest."""

from __future__ import annotations

import hashlib
import os
import re
import time
import zlib
from typing import Callable

from . import protocol
from .agent_link import Down, Gone, Link
from .agent_message import Job
from .agent_untar import BadArchive, untar
from .http_client import Unreachable
from .jobdir import JobDir, make_private_dir

_PART = protocol.BUNDLE_ARCHIVE + ".part"
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
#: An archive that grew since the job was claimed is still taken, up to here.
_SLACK = 64 << 20
#: gzip packs zeros a thousandfold; a bundle is text.
_MOST_UNPACKED = 1 << 40


class NoBundle(Exception):
    """The bundle cannot be had whole; the sentence is for the user."""


class _Broken(Exception):
    """One attempt broke off after it had begun."""


class Fetch:
    """Brings a job's bundle into its directory: ``bundle/`` appears by rename, verified, or not at all."""

    def __init__(
        self, link: Link, job: Job, jobdir: JobDir, *, pulse: Callable[[], None], wait: Callable[[], None],
        say: Callable[[str], None] = lambda text: None, clock: Callable[[], float] = time.monotonic,
    ):
        """``pulse`` is called often while bytes move, ``wait`` while the link is down; either may raise
        to end the fetch. ``say`` gets a line now and then about how far it is."""
        self._link, self._job, self._jobdir = link, job, jobdir
        self._pulse, self._wait, self._say = pulse, wait, say
        self._clock = clock
        self._said = clock()
        self._etag = _quoted(job.bundle_etag)
        self._part = jobdir.path(_PART)

    def run(self) -> None:
        """Does nothing when the bundle is there. Raises NoBundle, OSError, and what ``Link.call`` raises but Down."""
        if self._jobdir.has(protocol.BUNDLE_DIR):
            return
        why = ""
        for _ in range(protocol.BUNDLE_ATTEMPTS):
            try:
                self._download()
                self._unpack()
                return
            except _Broken as error:
                why = str(error)
            except BadArchive as error:
                why = str(error)
                self._jobdir.remove(_PART)
            self._say("bundle: %s" % why)
            self._pulse()  # what broke may have done so after a long silence
        raise NoBundle("the bundle did not arrive whole in %d attempts: %s" % (protocol.BUNDLE_ATTEMPTS, why))

    def _download(self) -> None:
        """One attempt that got as far as an answer; a server that is away costs no attempt."""
        while True:
            while not self._link.ready():
                self._wait()
            began = self._clock()
            try:
                return self._once()
            except Unreachable as error:
                self._link.failed(str(error), began)
                self._wait()
            except Down:
                self._wait()

    def _once(self) -> None:
        have = os.path.getsize(self._part) if os.path.exists(self._part) else 0
        headers = {"Range": "bytes=%d-" % have, "If-Range": self._etag} if have and self._etag else {}
        client = self._link.client_apart()
        try:
            with client.download("%s/jobs/%s/bundle" % (protocol.API_PREFIX, self._job.run_id), headers) as answer:
                if answer.status in (404, 410):
                    raise Gone(str(answer.whole().json.get("error", "")))
                if answer.status == 416:  # all of it is here, or the file has changed: the digest will tell
                    if have >= self._job.bundle_size > 0:
                        return
                    self._jobdir.remove(_PART)
                    raise _Broken("the server has less of it than is here")
                if answer.status not in (200, 206):
                    raise Unreachable("status %d" % answer.status)
                self._link.answered()
                start = 0
                if answer.status == 206:
                    found = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range") or "")
                    start = int(found.group(1)) if found else -1
                    if start != have:
                        self._jobdir.remove(_PART)
                        raise _Broken("the server sent another part than was asked for")
                self._etag = _quoted(answer.headers.get("ETag") or "")
                self._store(answer.read, start)
        finally:
            client.close()

    def _store(self, read: Callable[[], bytes], start: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if start else os.O_TRUNC)
        have = start
        with os.fdopen(os.open(self._part, flags, 0o600), "wb") as file:
            file.seek(start)
            while True:
                try:
                    block = read()
                except Unreachable as error:
                    raise _Broken("%s after %d bytes" % (error, have)) from None
                if not block:
                    return
                file.write(block)
                have += len(block)
                self._link.answered()
                if have > self._job.bundle_size + _SLACK:
                    self._jobdir.remove(_PART)
                    raise NoBundle("the bundle is larger than the job says")
                self._progress("getting", have, self._job.bundle_size)

    def _unpack(self) -> None:
        target = self._jobdir.path(protocol.BUNDLE_DIR)
        temporary = target + ".tmp"
        if os.path.lexists(temporary):  # of an attempt before this one
            import shutil  # costs half a MiB that most agents never need

            shutil.rmtree(temporary)
        make_private_dir(temporary)
        digest = hashlib.sha256()
        with open(self._part, "rb") as file:
            stream = _Gunzip(file.read, digest.update)

            def read(size: int) -> bytes:
                self._progress("unpacking", file.tell(), self._job.bundle_size)
                return stream.read(size)

            untar(read, temporary, most_bytes=_MOST_UNPACKED)
        if digest.hexdigest() != self._job.bundle_sha256:
            raise BadArchive("its SHA-256 is %s, the job says %s" % (digest.hexdigest(), self._job.bundle_sha256))
        os.rename(temporary, target)
        self._jobdir.remove(_PART)

    def _progress(self, verb: str, done: int, total: int) -> None:
        self._pulse()
        if self._clock() - self._said >= 2:
            self._said = self._clock()
            self._say("%s the bundle: %.1f of %.1f MB" % (verb, done / 1e6, total / 1e6))


class _Gunzip:
    """A gzip stream read in bounded pieces; everything that comes out also goes to ``seen``."""

    def __init__(self, read: Callable[[int], bytes], seen: Callable[[bytes], object]):
        self._read = read
        self._seen = seen
        self._inflate = zlib.decompressobj(wbits=31)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes, b"" at the end. Raises BadArchive for a stream that is damaged or cut."""
        while True:
            if self._inflate.eof:
                if self._inflate.unused_data or self._rest or self._read(1):
                    raise BadArchive("something follows the archive's end")
                return b""
            if not self._rest:
                self._rest = self._read(1 << 16)
            if not self._rest:
                raise BadArchive("the archive is cut short")
            try:
                data = self._inflate.decompress(self._rest, size)
            except zlib.error:
                raise BadArchive("the archive is damaged") from None
            self._rest = self._inflate.unconsumed_tail
            if data:
                self._seen(data)
                return data


def _quoted(etag: str) -> str:
    """An etag as headers have it, whether it came with its quotes or without."""
    return '"%s"' % etag.strip('"') if etag.strip('"') else ""
