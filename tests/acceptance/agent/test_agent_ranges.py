"""Parts of the bundle, as ``Range`` and ``If-Range`` ask for them."""

from __future__ import annotations

import pytest
from potato_training.worker.protocol import API_PREFIX

JOB = f"{API_PREFIX}/jobs/run-1"


@pytest.mark.parametrize(("wanted", "if_range", "status", "part"), [
    (None, None, 200, (0, None)),
    ("bytes=0-", None, 206, (0, None)),
    ("bytes=5-", "etag", 206, (5, None)),
    ("bytes=5-9", "etag", 206, (5, 10)),
    ("bytes=5-99999999", "etag", 206, (5, None)),
    ("bytes=-7", None, 206, (-7, None)),
    ("bytes=5-", '"other"', 200, (0, None)),
    ("bytes=5-", "W/etag", 200, (0, None)),
    ("bytes=5-", "Sat, 01 Jan 2028 00:00:00 GMT", 200, (0, None)),
    ("bytes=1-2,5-6", None, 200, (0, None)),
    ("bytes=9-5", None, 200, (0, None)),
    ("pages=1-2", None, 200, (0, None)),
    ("bytes=-", None, 200, (0, None)),
    ("bytes=99999999-", None, 416, None),
    ("bytes=-0", None, 416, None),
])
def test_parts_of_the_bundle(server, wanted, if_range, status, part):
    data = server.job.bundle.read_bytes()
    etag = '"{}"'.format(server.job.message["bundle"]["etag"])
    headers = {} if wanted is None else {"Range": wanted}
    if if_range:
        headers["If-Range"] = if_range.replace("etag", etag)
    found, answer_headers, body = server.ask("GET", f"{JOB}/bundle", headers=headers)
    whole = wanted == "bytes=0-"  # all of it is no part
    assert found == (200 if whole else status)
    assert answer_headers["accept-ranges"] == "bytes"
    assert answer_headers["etag"] == etag
    if part is None:
        assert answer_headers["content-range"] == f"bytes */{len(data)}"
        return
    expected = data[part[0]:part[1]]
    assert body == expected
    if found == 206:
        start = data.index(expected) if part[0] < 0 else part[0]
        assert answer_headers["content-range"] == f"bytes {start}-{start + len(expected) - 1}/{len(data)}"


def test_a_bundle_that_is_gone_is_no_job(server):
    server.job.bundle.rename(server.job.bundle.with_name("elsewhere"))
    server.intake.bundle_file = lambda job: type("B", (), {"path": job.bundle, "size": 5, "etag": "e"})
    assert server.ask("GET", f"{JOB}/bundle")[0] == 404
