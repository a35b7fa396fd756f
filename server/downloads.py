"""Files as answers: to be saved and never to be shown, but for logs; with their size, and in parts on demand."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import BinaryIO
from urllib.parse import quote

import flask

from ..runtime.agent_ranges import wanted_range
from . import artifacts


def whole(blocks: Iterable[bytes], size: int, name: str) -> flask.Response:
    """What is made while it is sent."""
    return _saved(flask.Response(blocks), size, name)


def file(opened: BinaryIO, name: str) -> flask.Response:
    """A file, or the part of it that ``Range`` asks for."""
    about = os.fstat(opened.fileno())
    size, etag = about.st_size, f'"{about.st_mtime_ns:x}-{about.st_size:x}"'
    span = wanted_range(flask.request.headers, size, etag)
    if span is None:
        opened.close()
        return flask.Response(status=416, headers={"Content-Range": f"bytes */{size}"})
    start, stop = span
    answer = flask.Response(artifacts.blocks(opened, start, stop))
    answer.headers["ETag"], answer.headers["Accept-Ranges"] = etag, "bytes"
    if span != (0, size):
        answer.status_code = 206
        answer.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return _saved(answer, stop - start, name)


def text(opened: BinaryIO) -> flask.Response:
    """A log, to be read in the browser, as far as it goes now."""
    size = os.fstat(opened.fileno()).st_size
    answer = flask.Response(artifacts.blocks(opened, 0, size), mimetype="text/plain")
    answer.headers["Content-Length"] = str(size)
    return answer


def _saved(answer: flask.Response, size: int, name: str) -> flask.Response:
    answer.mimetype = "application/octet-stream"
    answer.headers["Content-Length"] = str(size)
    answer.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    return answer
