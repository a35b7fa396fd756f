"""Private files, locks and processes, tried on real ones."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys

import pytest
from potato_training.worker.jobdir import Identity, JobDir, Lock, hostname, make_private_dir, write_private


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def no_umask():
    old = os.umask(0)
    yield
    os.umask(old)


def test_everything_is_private_whatever_the_umask(tmp_path, no_umask):
    make_private_dir(str(tmp_path / "a" / "b" / "c"))
    assert [mode(tmp_path / p) for p in ("a", "a/b", "a/b/c")] == [0o700] * 3
    jobdir = JobDir(tmp_path / "a" / "b" / "c")
    jobdir.write("file", "x")
    jobdir.touch("touched")
    os.close(jobdir.open_append("appended"))
    assert [mode(jobdir.path(name)) for name in ("file", "touched", "appended")] == [0o600] * 3


def test_a_directory_that_was_open_is_tightened(tmp_path, no_umask):
    (tmp_path / "job").mkdir(mode=0o777)
    JobDir(tmp_path / "job").create()
    assert mode(tmp_path / "job") == 0o700


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = str(tmp_path / "file")
    write_private(path, "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_private(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "5", "[" * 100_000])
def test_a_file_that_holds_no_object_is_none(tmp_path, text):
    jobdir = JobDir(tmp_path)
    jobdir.write("x.json", text)
    assert jobdir.read_json("x.json") is None
    assert jobdir.read_json("missing.json") is None


@pytest.mark.parametrize(("text", "code"), [("0\n", 0), ("137", 137), ("", None), ("x", None), ("4\n", 4)])
def test_exit_codes(tmp_path, text, code):
    jobdir = JobDir(tmp_path)
    jobdir.write("exit_code", text)
    assert jobdir.read_exit_code("exit_code") == code


HOLD = """
import sys
from potato_training.worker.jobdir import Lock
print(Lock(sys.argv[1]).take(), flush=True)
sys.stdin.read()
"""


def test_a_lock_ends_with_its_process_however_that_dies(tmp_path, wait_until):
    path = str(tmp_path / "lock")
    assert not Lock(path).held()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "True\n"
        ours = Lock(path)
        assert not ours.take()
        assert ours.held()
        assert ours.holder() == {"host": hostname(), "pid": holder.pid}
    finally:
        holder.kill()
        holder.communicate()
    assert not ours.held()
    assert ours.take()
    assert ours.holder()["pid"] == os.getpid()
    ours.release()
    assert not ours.held()


@pytest.fixture
def leader():
    """A process that leads a session, with a child that ignores TERM."""
    code = (
        "import os,signal,sys,time\n"
        "if os.fork() == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    sys.stdout.write('up\\n')\n"
        "    sys.stdout.flush()\n"
        "while True:\n    time.sleep(3600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_process_is_known_by_more_than_its_pid(leader):
    identity = Identity.of(leader.pid)
    assert identity.is_alive()
    assert Identity.from_json(json.loads(json.dumps(identity.to_json()))).is_alive()
    reused = Identity(leader.pid, leader.pid, identity.start + "1", identity.host)
    assert not reused.is_alive()
    assert reused.group() == []
    assert not reused.kill_group()
    assert leader.poll() is None


def test_a_group_outlives_its_leader_and_can_still_be_ended(leader, wait_until):
    identity = Identity.of(leader.pid)
    assert len(identity.group()) == 2
    assert identity.signal_group(signal.SIGTERM)
    leader.wait(60)
    assert not identity.is_alive()
    assert len(identity.group()) == 1
    assert identity.kill_group()
    wait_until(lambda: identity.group() == [], "the end of the group")
    assert not identity.kill_group()


def test_a_zombie_is_dead():
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    identity = Identity.of(child.pid)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.is_alive()
    assert child.pid not in identity.group()
    child.wait()
    with pytest.raises(ProcessLookupError):
        Identity.of(child.pid)


def test_nothing_is_said_about_another_host(leader):
    identity = Identity.of(leader.pid)
    elsewhere = Identity(identity.pid, identity.pgid, identity.start, "elsewhere")
    with pytest.raises(ValueError, match="elsewhere"):
        elsewhere.is_alive()


@pytest.mark.parametrize("value", [None, {}, [], {"pid": "x"}, {"pid": 1, "pgid": 1, "start": "1"}])
def test_what_is_no_identity_is_none(value):
    assert Identity.from_json(value) is None
