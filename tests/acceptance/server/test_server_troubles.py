"""A machine with troubles: what the page and the API say then, and that they go on afterwards."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest


@pytest.fixture
def site(server):
    return server()


def test_a_supervisor_that_does_not_come_up_is_told_on_the_page(site, study):
    """The run waits, nothing says that it is about to start, and it goes on when the fault is mended."""
    broken = study.places.root / "fcntl.py"  # the supervisor stands there, and looks there for modules first
    broken.write_text("raise RuntimeError('no such luck')\n")
    refused = site.post("api/runs", {"trainer": "test-quick", "schemas": ["sentiment"]})
    assert refused.status == 503
    assert "the project's supervisor did not start" in refused.text
    study.wait_until(lambda: site.get("api/status").json["troubles"], "the trouble")
    now = site.get("").text.partition('id="region-now"')[2].partition('id="region-auto"')[0]
    assert "Nothing looks after the runs just now" in now
    assert "no such luck" in now
    assert "about to start" not in now
    broken.unlink()
    run = study.runs()[0].run_id
    assert study.ended(run).state == "succeeded"
    study.wait_until(lambda: site.get("api/status").json["troubles"] == [], "the end of the trouble")
    assert "Nothing looks after" not in site.get("").text


def test_a_ledger_that_cannot_be_used_is_said_to_be_so(site, study):
    with contextlib.closing(sqlite3.connect(study.places.store)) as db:
        db.execute("ALTER TABLE runs RENAME TO gone")
        for path in ("api/runs", "", "runs/x"):
            answer = site.get(path)
            assert answer.status == 503
            assert "he ledger cannot be used now: no such table: runs" in answer.text
        db.execute("ALTER TABLE gone RENAME TO runs")
    assert site.get("").status == 200
