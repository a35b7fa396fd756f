"""Bundles that break off, change, lie, or reach outside; predictions that are too many."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile

import pytest
from potato_training.runtime.protocol_types import BundleFile

RUNNING = ["event", "status", {"state": "running"}]
PLAN = [RUNNING, ["exit", 0]]
FILES = {"manifest.json": b"{}\n", "train.jsonl": os.urandom(700_000)}


def cut_after(bench, sizes, ranges):
    """The bundle's connection breaks after so many bytes of the file, once for each of ``sizes``."""
    sizes = list(sizes)

    def serve(job):
        from flask import request

        ranges.append((request.headers.get("Range"), request.headers.get("If-Range")))
        whole = BundleFile(job.bundle, job.bundle.stat().st_size, job.message["bundle"]["etag"])
        if not sizes:
            return whole
        cut = job.bundle.with_name(f"cut-{len(sizes)}")
        cut.write_bytes(job.bundle.read_bytes()[: sizes.pop(0)])
        return BundleFile(cut, whole.size, whole.etag)

    bench.intake.bundle_file = serve


def test_a_download_that_breaks_off_is_resumed_where_it_stopped(bench):
    job = bench.add_job(PLAN, files=FILES)
    ranges = []
    cut_after(bench, [100_000, 100_001, 400_000], ranges)
    assert bench.start_agent().wait(60) == 0
    etag = '"{}"'.format(job.message["bundle"]["etag"])
    assert ranges == [
        (None, None), ("bytes=100000-", etag), ("bytes=100001-", etag), ("bytes=400000-", etag)
    ]
    assert job.result["exit_code"] == 0
    with open(bench.jobdir.path("bundle", "train.jsonl"), "rb") as file:
        assert file.read() == FILES["train.jsonl"]


def test_the_fifth_break_is_the_last(bench):
    job = bench.add_job(PLAN, files=FILES)
    ranges = []
    cut_after(bench, [1000 * n for n in range(1, 9)], ranges)
    assert bench.start_agent().wait(60) == 0
    assert len(ranges) == 5
    assert (job.result["exit_code"], job.result["reason"]) == (None, "bundle")
    assert bench.said("the bundle did not arrive whole in 5 attempts: the answer broke off after 5000 bytes")


def test_a_bundle_that_changes_meanwhile_is_started_over(bench):
    """Packed again: the same tar, other bytes of gzip, another etag."""
    job = bench.add_job(PLAN, files=FILES)
    ranges = []
    cut_after(bench, [50_000], ranges)
    serve = bench.intake.bundle_file
    again = bench.folder / "again.tar.gz"
    again.write_bytes(gzip.compress(gzip.decompress(job.bundle.read_bytes()), 1, mtime=9))

    def serve_changed(job):
        served = serve(job)
        return served if served.path != job.bundle else BundleFile(again, again.stat().st_size, "changed")

    bench.intake.bundle_file = serve_changed
    assert bench.start_agent().wait(60) == 0
    assert len(ranges) == 2
    assert job.result["exit_code"] == 0


def test_a_bundle_with_another_digest_is_refused(bench):
    job = bench.add_job(PLAN, files=FILES)
    job.message["bundle"]["sha256"] = "0" * 64
    calls = []
    bench.intake.before = lambda method, run_id: calls.append(method)
    assert bench.start_agent().wait(60) == 0
    assert calls.count("bundle") == 5
    assert job.result["reason"] == "bundle"
    assert not os.path.exists(bench.jobdir.path("bundle"))
    assert job.worker_events == []


def archive_with(*members):
    """A tar of (name, type, data or link target)."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, kind, data in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                member.linkname = data
                archive.addfile(member)
            else:
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return plain.getvalue()


FILE, LINK = tarfile.REGTYPE, tarfile.SYMTYPE


@pytest.mark.parametrize("members", [
    [("../../outside", FILE, b"x")],
    [("/tmp/p-outside", FILE, b"x")],
    [("d", LINK, "/tmp"), ("d/x", FILE, b"x")],
    [("manifest.json", FILE, b"{}"), ("manifest.json", FILE, b"{}")],
    [("a", tarfile.FIFOTYPE, b"")],
    [("a", tarfile.LNKTYPE, "manifest.json")],
], ids=["dot-dot", "absolute", "through a link", "twice", "fifo", "hard link"])
def test_an_archive_that_reaches_outside_is_refused_whole(bench, members):
    job = bench.add_job(PLAN)
    plain = archive_with(("manifest.json.ok", FILE, b"x"), *members)
    job.bundle.write_bytes(gzip.compress(plain))
    job.message["bundle"].update(sha256=hashlib.sha256(plain).hexdigest(), size=job.bundle.stat().st_size)
    assert bench.start_agent().wait(60) == 0
    assert job.result["reason"] == "bundle"
    assert not os.path.exists(bench.jobdir.path("bundle"))
    assert not os.path.exists("/tmp/p-outside")
    assert not os.path.exists(bench.folder / "outside")


def test_a_cancel_is_heard_while_the_bundle_is_on_its_way(bench):
    job = bench.add_job(PLAN, files=FILES)
    job.cancel = True
    assert bench.start_agent().wait(60) == 0
    assert (job.result["exit_code"], job.result["reason"]) == (None, "cancelled")
    assert job.worker_events == []


def test_too_many_predictions_end_with_that_reason(bench):
    job = bench.add_job([RUNNING, ["big_predictions", 30_000_000], ["exit", 0]])
    job.limit_bytes = 1_000_000
    assert bench.start_agent().wait(60) == 0
    assert job.predictions is None
    assert (job.result["exit_code"], job.result["reason"]) == (0, "predictions-too-large")
    assert bench.said("predictions are larger than 1000000 bytes")
    assert sum(map(len, bench.intake.sinks[0].blocks)) == 0  # its length alone said it


def test_predictions_that_are_not_what_the_result_says_are_refused(bench):
    job = bench.add_job([RUNNING, ["predictions", "p\n", "1" * 64], ["exit", 0]])
    assert bench.start_agent().wait(60) == 0
    assert job.predictions is None
    assert job.result["reason"] == "predictions-refused"


def test_large_predictions_arrive_while_heartbeats_go_on(bench):
    job = bench.add_job([RUNNING, ["big_predictions", 20_000_000], ["exit", 0]], heartbeat_s=0.01)
    batches = []
    bench.intake.before = lambda method, run_id: batches.append(method)
    assert bench.start_agent().wait(60) == 0
    assert len(job.predictions) == 20_000_000
    during = batches[batches.index("predictions"):batches.index("result")]
    assert during.count("events") > 0
