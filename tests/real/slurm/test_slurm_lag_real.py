"""Shared storage that shows files late: the node has another copy of remote_dir, brought up to date both ways.

Directories are there at once, as a lookup of a fresh name is; what files hold comes late, in its order.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.real


class Mirror(threading.Thread):
    """Two directories; a change in one is in the other ``lag`` seconds later. A file that grew is added to."""

    def __init__(self, one, other, lag, owner):
        super().__init__(daemon=True)
        self.sides, self.lag, self.owner = (one, other), lag, owner
        self.known = ({}, {})       # side -> {name: state}, as it is or as we made it
        self.due, self.count = [], itertools.count()
        self.stop = threading.Event()
        self.late = 0

    def run(self):
        while not self.stop.wait(0.05):
            for side in (0, 1):
                self._scan(side)
            while self.due and self.due[0][0] <= time.monotonic():
                _, _, side, name, data, state = heapq.heappop(self.due)
                self._bring(1 - side, name, data, state)
                self.late += 1

    def _scan(self, side):
        root, seen = self.sides[side], {}
        for folder, folders, files in os.walk(root):
            for name in folders:
                self._mkdir(side, Path(folder, name).relative_to(root))
            for name in files:
                path = Path(folder, name)
                with contextlib.suppress(OSError):
                    found = path.stat()
                    seen[str(path.relative_to(root))] = (found.st_size, found.st_mtime_ns, found.st_ino)
        known = self.known[side]
        for name in sorted({*seen, *known}, key=lambda n: seen.get(n, (0, 0))[1]):
            if seen.get(name) != known.get(name):
                data = state = None
                if name in seen:
                    with contextlib.suppress(OSError):
                        data, state = (root / name).read_bytes(), os.stat(root / name)
                    if data is None:
                        continue
                    known[name] = seen[name]
                else:
                    del known[name]
                heapq.heappush(self.due, (time.monotonic() + self.lag, next(self.count), side, name, data, state))

    def _mkdir(self, side, name):
        there = self.sides[1 - side] / name
        if not there.exists():
            with contextlib.suppress(OSError):
                there.mkdir(mode=0o700)
                os.chown(there, *self.owner)

    def _bring(self, side, name, data, state):
        path = self.sides[side] / name
        with contextlib.suppress(OSError):
            if data is None:
                self.known[side].pop(name, None)
                path.unlink()
                return
            old = path.read_bytes() if path.exists() else None
            if old is not None and len(old) > len(data) and old.startswith(data):
                return              # an older state of a file that has grown here since
            if old is not None and data.startswith(old):
                with path.open("ab") as file:
                    file.write(data[len(old):])
            else:
                fresh = path.with_name(f".{path.name}.mirror")
                fresh.write_bytes(data)
                os.chown(fresh, *self.owner)
                fresh.chmod(state.st_mode & 0o777)
                fresh.replace(path)
            found = path.stat()
            self.known[side][name] = (found.st_size, found.st_mtime_ns, found.st_ino)


@pytest.fixture
def lagging(login, slurm_cluster, wait_until):
    """A Login whose nodes see its remote_dir so many seconds late."""
    made = []

    def make(lag, **keys):
        study = login(**keys)
        owner = (study.account.uid, study.account.gid)
        home, theirs = study.account.home / "pt", Path(tempfile.mkdtemp(prefix="potato-mirror-"))
        theirs.chmod(0o755)
        for path in (home, home / "jobs", theirs / "pt", theirs / "pt" / "jobs"):
            path.mkdir(mode=0o700, exist_ok=True)
            os.chown(path, *owner)
        # the nodes' daemons get a view of their own, in which the copy is in the place of remote_dir
        view = ["unshare", "-m", "sh", "-c", f'mount --bind {theirs}/pt {home} && exec "$@"', "-"]
        if lag >= 30:
            set_kill_wait(30)
        restart(view)
        mirror = Mirror(home, theirs / "pt", lag, owner)
        mirror.start()
        made.append((mirror, theirs))
        return study, mirror

    def set_kill_wait(seconds):
        text = slurm_cluster.conf.read_text()
        slurm_cluster.conf.write_text(re.sub(r"(?m)^KillWait=.*$", f"KillWait={seconds}", text))
        slurm_cluster.run(["scontrol", "reconfigure"])

    def restart(view=()):
        for node in ("n1", "n2"):
            slurm_cluster.kill_daemon(node)
            slurm_cluster.start_daemon(node, view)
        slurm_cluster.wait_nodes()

    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    yield make
    for mirror, theirs in made:
        mirror.stop.set()
        mirror.join()
        shutil.rmtree(theirs, ignore_errors=True)
    set_kill_wait(5)
    restart()


#: The long ones take ten minutes; POTATO_TEST_LAG=1 asks for them.
LONG = pytest.mark.skipif("POTATO_TEST_LAG" not in os.environ, reason="takes minutes; POTATO_TEST_LAG=1 asks for it")
LAGS = [5, pytest.param(30, marks=LONG), pytest.param(60, marks=LONG)]


@pytest.mark.parametrize("lag", LAGS)
def test_a_run_over_storage_that_lags(lagging, lag):
    study, mirror = lagging(lag)
    study.bounds(slurm_settle_s=max(20, lag * 1.5))
    ran = study.potato("training", "run", "--trainer", "test-slow", "--param", "steps=20", timeout=900)
    (run,) = study.runs()
    assert ran.returncode == 0, ran.stdout + study.log(run.run_id) + study.places.supervisor_log.read_text()
    steps = [e["current"] for e in study.events(run.run_id) if e["event"] == "progress" and e.get("phase") == "fit"]
    assert steps == sorted(set(steps)) and steps
    assert (study.places.run_dir(run.run_id) / "artifacts" / "sentiment" / "shares.json").exists()
    assert len(study.job_ids(run.run_id)) == 1
    assert mirror.late > 20
    study.ended(run.run_id)


@pytest.mark.parametrize("lag", LAGS)
def test_cancel_over_storage_that_lags(lagging, lag):
    study, _ = lagging(lag)
    study.configure(grace_seconds=5)
    study.bounds(slurm_settle_s=max(20, lag * 1.5))
    process, run_id = study.train("test-stubborn")
    study.reaches(run_id, "running")
    job_id = study.job_id(run_id)
    study.potato("training", "cancel", run_id, check=True)
    study.finish(process)
    assert study.ended(run_id).state == "cancelled"
    assert study.cluster.job(job_id).get("JobState") in (None, "CANCELLED", "FAILED", "COMPLETED")
    assert study.job_ids(run_id) in ([job_id], [])
