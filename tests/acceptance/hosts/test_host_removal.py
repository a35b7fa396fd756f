"""What comes home from a host, and what is removed there."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

SHELLS = ["sh", "bash", "dash"]


# --- artifacts ------------------------------------------------------------------------------------------


def put(root, files):
    for name, data in files.items():
        path = root / "jobs" / "example" / "artifacts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.mark.parametrize("shell", SHELLS)
def test_artifacts_come_with_their_sizes_first(ssh, host, over_ssh, shell):
    files = {"a/model.safetensors": os.urandom(300_000), "a/config.json": b"{}", "-n $x *": b"odd", "empty": b""}
    put(host.root, files)
    put(host.root, {"a/huge.bin": bytes(2 << 20)})
    answer = over_ssh(ssh(max_artifact_mb=1)["send_artifacts.sh"], shell=shell, env=host.env)
    assert answer.returncode == 0
    head, _, tar = answer.said.partition(b" data\n")
    lines = head.decode().splitlines()
    assert sorted(line for line in lines if line.startswith("file=")) == sorted(
        f"file={len(data)} {name}" for name, data in files.items())
    assert [line for line in lines if line.startswith("left=")] == [f"left={2 << 20} a/huge.bin"]
    assert f"total={sum(map(len, files.values()))}" in lines
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        found = {m.name.removeprefix("./"): archive.extractfile(m).read() for m in archive if m.isfile()}
    assert found == files
    assert [p.name for p in (host.root / "jobs" / "example").iterdir()] == ["artifacts"]


@pytest.mark.parametrize(("keys", "left"), [({"fetch_artifacts": False}, ["left=2 m"]), ({"max_artifact_mb": 1}, [])])
def test_nothing_to_send(ssh, host, over_ssh, keys, left):
    if left:
        put(host.root, {"m": b"xx"})
    answer = over_ssh(ssh(**keys)["send_artifacts.sh"], env=host.env)
    assert answer.end == 0
    assert answer.values["total"] == ["0"]
    assert [f"left={x}" for x in answer.values.get("left", [])] == left


# --- removal --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("what", ["all", "all but artifacts"])
def test_removal(ssh, host, over_ssh, shell, what):
    put(host.root, {"m": b"xx"})
    job = host.root / "jobs" / "example"
    (job / "attach.json").write_text("secret")
    (job / ".hidden").touch()
    (job / "bundle").mkdir()
    (host.root / "jobs" / "another").mkdir()
    socket = Path(f"/tmp/p-{os.urandom(4).hex()}")
    socket.mkdir()
    (socket / "s").touch()
    keep = (host.home / "elsewhere")
    keep.mkdir()
    (job / "link").symlink_to(keep)
    answer = over_ssh(ssh()["remove_job.sh"], what, socket.as_posix(), shell=shell, env=host.env)
    assert answer.end == 0, answer.values
    assert not socket.exists()
    assert keep.exists()
    assert (host.root / "jobs" / "another").exists()
    if what == "all":
        assert not job.exists()
    else:
        assert [str(p.relative_to(job)) for p in sorted(job.rglob("*"))] == ["artifacts", "artifacts/m"]
        assert answer.values["kept"] == [f"{job}/artifacts"]
    assert over_ssh(ssh()["remove_job.sh"], what, "-", shell=shell, env=host.env).end == 0


def test_keep_remote_removes_only_the_token(ssh, host, over_ssh):
    put(host.root, {"m": b"xx"})
    job = host.root / "jobs" / "example"
    (job / "attach.json").write_text("secret")
    answer = over_ssh(ssh(keep_remote=True)["remove_job.sh"], "all", "-", env=host.env)
    assert answer.values["kept"] == [str(job)]
    assert [p.name for p in job.iterdir()] == ["artifacts"]


@pytest.mark.parametrize(("what", "socket"), [("", "-"), ("everything", "-"), ("all", "/tmp/p-x/../../home")])
def test_a_removal_that_nobody_meant(ssh, host, over_ssh, what, socket):
    put(host.root, {"m": b"xx"})
    assert over_ssh(ssh()["remove_job.sh"], what, socket, env=host.env).end == 1
    assert (host.root / "jobs" / "example" / "artifacts" / "m").exists()
