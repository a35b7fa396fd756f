"""The code that travels to a host: whole, or not at all."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import time
from pathlib import Path

import pytest

SHELLS = ["sh", "bash", "dash"]
CODE = "0123abcdef"


SOME_CODE = dict.fromkeys(["potato_training/__init__.py", "potato_training/worker/agent.py"], b"# code\n" * 500)
TIDY = {"potato_training/worker/tidy.py": (Path(__file__).parents[3] / "worker" / "tidy.py").read_bytes()}


@pytest.fixture
def code_tar(listed):
    def make(name=CODE, files=SOME_CODE):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for path, data in (*files.items(), (name, listed(files))):
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode, entry.uid = len(data), 0o600, 12345
                tar.addfile(entry, io.BytesIO(data))
        return out.getvalue()

    return make


@pytest.mark.parametrize("shell", SHELLS)
def test_the_code_arrives_whole(ssh, host, over_ssh, code_tar, shell):
    answer = over_ssh(ssh()["receive_code.sh"], CODE, tail=code_tar(), shell=shell, env=host.env)
    assert answer.end == 0, answer.stderr
    assert answer.values["code"] == [f"{host.root}/code/{CODE}"]
    found = sorted(str(p.relative_to(host.root / "code")) for p in (host.root / "code").rglob("*.py"))
    assert found == [f"{CODE}/potato_training/__init__.py", f"{CODE}/potato_training/worker/agent.py"]
    arrived = (host.root / "code" / CODE / found[0].split("/", 1)[1]).stat()
    assert arrived.st_uid == os.geteuid()
    assert arrived.st_mtime > time.time() - 3600, "what cleans a scratch disk takes old files first"
    for path in (host.root, host.root / "code", host.root / "code" / CODE):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("at", [0, 100, 512, 5000, 8192, -10240, -1])
def test_code_that_breaks_off_is_never_taken_for_whole(ssh, host, over_ssh, code_tar, shell, at):
    whole = code_tar()
    # up to the record before the last member, whatever padding tar adds behind the end
    end = whole.index(CODE.encode() + b"\0")
    cut = whole[:end][:at] if at else b""
    answer = over_ssh(ssh()["receive_code.sh"], CODE, tail=cut, shell=shell, env=host.env)
    assert answer.end == 1
    assert "broke off" in answer.values["error"][0]
    assert list((host.root / "code").iterdir()) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_what_others_could_write_to_is_closed_to_them(ssh, host, over_ssh, code_tar, shell):
    """As a umask of 002 leaves it, or a default ACL of a project's disk."""
    for name in ("code", "jobs"):
        (host.root / name).mkdir(parents=True)
        (host.root / name).chmod(0o775)
    files = ssh(python="/bin/true")
    assert over_ssh(files["probe.sh"], CODE, "-", "", shell=shell, env=host.env).values["root"] == [str(host.root)]
    assert over_ssh(files["receive_code.sh"], CODE, tail=code_tar(), shell=shell, env=host.env).end == 0
    assert over_ssh(files["launch.sh"], CODE, tail=b"hello\n", shell=shell, env=host.env).end == 0
    modes = {name: (host.root / name).stat().st_mode & 0o777 for name in ("code", "jobs", "jobs/example")}
    assert modes == {"code": 0o755, "jobs": 0o755, "jobs/example": 0o700}


def test_two_servers_bring_the_same_code_at_once(ssh, host, over_ssh, code_tar, wait_until):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(
            lambda _: over_ssh(ssh()["receive_code.sh"], CODE, tail=code_tar(), env=host.env), range(4)))
    assert [a.end for a in answers] == [0, 0, 0, 0], [a.stderr for a in answers]
    assert sorted(p.name for p in (host.root / "code" / CODE).iterdir()) == [CODE, "potato_training"]
    wait_until(lambda: [p.name for p in (host.root / "code").iterdir()] == [CODE], "the end of what nobody waits for")


def test_somebody_is_first_at_the_very_moment(ssh, host, store, over_ssh, code_tar):
    """mv finds a directory where there was none: it puts ours into theirs, which stays as it was."""
    place = store(SOME_CODE)
    place.rename(host.home / "theirs")
    host.program("mv", f"#!/bin/sh\n/bin/mv '{host.home}/theirs' '{place}'\nexec /bin/mv \"$@\"\n")
    answer = over_ssh(ssh()["receive_code.sh"], CODE, tail=code_tar(), env=host.env)
    assert answer.end == 0, (answer.values, answer.stderr)
    assert sorted(p.name for p in place.iterdir()) == [CODE, "potato_training"]


def lose(copy, what):
    """As cleaners of scratch space do, and disks that were full."""
    agent = copy / "potato_training" / "worker" / "agent.py"
    if what == "a file":
        agent.unlink()
    elif what == "its end":
        agent.write_bytes(agent.read_bytes()[:-1])
    elif what == "the list":
        (copy / copy.name).unlink()
    else:
        for path in copy.rglob("*"):
            if path.is_file():
                path.unlink()


LOST = ["a file", "its end", "the list", "all files"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("what", LOST)
def test_a_copy_that_has_lost_something_is_replaced(ssh, host, store, over_ssh, code_tar, shell, what):
    """Neither the probe nor a launch takes it, and a job that runs keeps what it has linked."""
    copy = store(SOME_CODE)
    job = host.root / "jobs" / "running" / "code"
    job.mkdir(parents=True)
    linked = job / "agent.py"
    linked.hardlink_to(copy / "potato_training" / "worker" / "agent.py")
    lose(copy, what)
    files = ssh(python="/bin/true")
    before, was = linked.read_bytes(), linked.stat().st_ino
    assert "code" not in over_ssh(files["probe.sh"], CODE, "-", "", shell=shell, env=host.env).values
    answer = over_ssh(files["launch.sh"], CODE, tail=b"hello\n", shell=shell, env=host.env)
    assert (answer.end, answer.values["code"]) == (1, ["missing"])
    assert not (host.root / "jobs" / "example" / "code").exists()
    answer = over_ssh(files["receive_code.sh"], CODE, tail=code_tar(), shell=shell, env=host.env)
    assert answer.end == 0, answer.values
    assert over_ssh(files["probe.sh"], CODE, "-", "", shell=shell, env=host.env).values["code"] == [CODE]
    assert over_ssh(files["launch.sh"], CODE, tail=b"hello\n", shell=shell, env=host.env).end == 0
    assert {p.name for p in (host.root / "code").iterdir()} == {CODE}
    assert (linked.read_bytes(), linked.stat().st_ino) == (before, was)


def test_two_servers_replace_the_same_copy_at_once(ssh, host, store, over_ssh, code_tar, wait_until):
    from concurrent.futures import ThreadPoolExecutor

    lose(store(SOME_CODE), "a file")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(
            lambda _: over_ssh(ssh()["receive_code.sh"], CODE, tail=code_tar(), env=host.env), range(4)))
    assert over_ssh(ssh()["probe.sh"], CODE, "-", "", env=host.env).values["code"] == [CODE]
    assert [a.end for a in answers] == [0, 0, 0, 0], [a.values for a in answers]
    wait_until(lambda: [p.name for p in (host.root / "code").iterdir()] == [CODE], "the end of what nobody waits for")


def test_the_newest_three_copies_stay(ssh, host, over_ssh, code_tar, wait_until):
    store = host.root / "code"
    store.mkdir(parents=True)
    for n, name in enumerate(["aa", "bb", "cc", "dd"]):
        (store / name).mkdir()
        os.utime(store / name, (1000 + n, 1000 + n))
    (store / ".ee.123").mkdir()
    os.utime(store / ".ee.123", (1000, 1000))
    (store / ".ff.456").mkdir()         # somebody is at it
    tail = code_tar(files={**SOME_CODE, **TIDY})
    assert over_ssh(ssh()["receive_code.sh"], CODE, tail=tail, env=host.env).end == 0
    wait_until(lambda: sorted(p.name for p in store.iterdir()) == [".ff.456", CODE, "cc", "dd"], "the newest three")


def written_for(pyc):
    """The time of the source that this bytecode is for."""
    return int.from_bytes(pyc.read_bytes()[8:12], "little")


def source_of(pyc):
    return pyc.parents[1] / f"{pyc.name.split('.')[0]}.py"


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_jobs_copy_the_code_while_it_is_compiled(ssh, host, over_ssh, code_tar, wait_until, shell):
    """However often: each copy is whole, and what it was copied from loses no name."""
    from potato_training.runtime.ssh import code

    wanted = set(code.files())
    launch = ssh(python="/bin/true")["launch.sh"]
    job = host.root / "jobs" / "example"
    for turn in range(3):
        name = f"{turn:032x}"
        tail = code_tar(name, code.files())
        answer = over_ssh(ssh()["receive_code.sh"], name, tail=tail, shell=shell, env=host.env)
        assert answer.end == 0, answer.values
        seen, made = set(), []
        while len(made) < len(wanted):
            shutil.rmtree(job, ignore_errors=True)
            answer = over_ssh(launch, name, tail=b"hello\n", shell=shell, env=host.env)
            assert answer.end == 0, answer.values
            assert wanted <= {str(p.relative_to(job / "code")) for p in (job / "code").rglob("*.py")}
            now = {str(p) for p in (host.root / "code" / name).rglob("*")}
            assert seen <= now, seen - now
            seen, made = now, [p for p in now if p.endswith(".pyc")]
    made = [p for p in (job / "code").rglob("*.pyc") if written_for(p) != int(source_of(p).stat().st_mtime)]
    assert made == [], "bytecode that Python would not take"
    wait_until(lambda: len(list((host.root / "code").iterdir())) == 3, "the newest three, and nothing else")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "XYZ", "."])
def test_code_has_a_plain_name(ssh, host, over_ssh, code_tar, name):
    for script in ("receive_code.sh", "launch.sh"):
        answer = over_ssh(ssh()[script], name, tail=code_tar(), env=host.env)
        assert answer.values["error"] == ["no such code"]
