"""The code there and the model back: whole or not at all, and nothing trusted on the way."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tarfile

import pytest

pytestmark = pytest.mark.real

#: A tar that does what the file ``tar.how`` beside it says, once the model files are asked for.
TAR = """#!/usr/bin/python3
import io, os, subprocess, sys, tarfile, time
args = sys.argv[1:]
how = open({home!r} + "/tar.how").read().split()
if args[:2] != ["-cf", "-"]:
    os.execv("/usr/bin/tar", ["tar", *args])
real = subprocess.run(["/usr/bin/tar", *args], stdout=subprocess.PIPE).stdout
def member(name, data=b"x", kind=tarfile.REGTYPE, link=""):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, len(data)
        tar.addfile(info, io.BytesIO(data))
    return out.getvalue()[:512 + (len(data) + 511) // 512 * 512]
body = {{
    "stall": lambda: real[:1024],
    "short": lambda: real[:-10000],
    "dots": lambda: member("../../outside") + real,
    "absolute": lambda: member("/tmp/pt-outside") + real,
    "link": lambda: member("d", b"", tarfile.SYMTYPE, "/tmp") + member("d/pt-outside") + real,
    "hard": lambda: member("h", b"", tarfile.LNKTYPE, "/etc/passwd") + real,
    "fifo": lambda: member("f", b"", tarfile.FIFOTYPE) + real,
    "device": lambda: member("n", b"", tarfile.CHRTYPE) + real,
    "twice": lambda: real[:1024] + real,
    "more": lambda: member("not-announced") + real,
    "garbage": lambda: b"\\x01" * 100000,
    "after": lambda: real + b"more",
    "halves": lambda: real[:len(real) // 2],
}}[how[0]]()
sys.stdout.buffer.write(body)
sys.stdout.flush()
if how[0] == "stall":
    open({home!r} + "/tar.stalled", "w").close()
    time.sleep(600)
if how[0] == "halves":
    while not os.path.exists({home!r} + "/tar.go"):
        time.sleep(0.02)
    sys.stdout.buffer.write(real[len(real) // 2:])
"""


def hostile(study, how):
    study.account.put("tar.how", how)
    program = study.account.program("bin/tar", TAR.format(home=str(study.account.home)))
    # the login shell's own PATH: the script that sends takes no environment from the config
    study.account.put(".bashrc", f"export PATH={program.parent}:$PATH\n")


def ends_well(study, trainer="test-quick", *more):
    ran = study.potato("training", "run", "--trainer", trainer, *more)
    assert ran.returncode == 0, ran.stdout + ran.stderr + study.places.supervisor_log.read_text()
    return study.ended(study.runs()[0].run_id), ran.stdout


def artifacts(study, run):
    folder = study.places.run_dir(run.run_id) / "artifacts"
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) if folder.exists() else None


def test_code_goes_once_and_the_second_run_is_warm(remote):
    study = remote()
    ends_well(study)
    copies = list((study.account.home / "pt" / "code").glob("[0-9a-f]*"))
    assert len(copies) == 1
    logins, commands = study.sshd.logins(), study.sshd.commands()
    _, output = ends_well(study)
    assert list((study.account.home / "pt" / "code").glob("[0-9a-f]*")) == copies
    assert "copied the code" not in output
    assert study.sshd.logins() - logins == 1
    # one login, one forwarded socket, and so many commands: probe, agent, model files, removal
    assert study.sshd.commands() - commands == 4
    # what cleans scratch disks came by
    (copies[0] / "potato_training" / "worker" / "session.py").unlink()
    _, output = ends_well(study)
    assert f"copied the code to {copies[0]}" in output
    study.nothing_is_left()


def test_the_newest_three_copies_are_kept(remote):
    study = remote()
    store = study.account.home / "pt" / "code"
    for n in range(5):
        study.account.put(f"pt/code/{n:032x}/potato_training/__init__.py", "")
        os.utime(store / f"{n:032x}", (1000 + n, 1000 + n))
    ends_well(study)
    study.wait_until(lambda: len(list(store.iterdir())) == 3, "the newest three")
    assert {f"{3:032x}", f"{4:032x}"} < {p.name for p in store.iterdir()}


def test_files_above_the_limit_stay_and_are_named(remote):
    study = remote(max_artifact_mb=0.0001)       # 104 bytes: shares.json is smaller, potato.json larger
    run, output = ends_well(study)
    assert artifacts(study, run) == ["sentiment/shares.json"]
    assert "left on gpu.example.org: sentiment/potato.json" in output
    assert "above max_artifact_mb" in output
    kept = study.jobs / run.run_id
    assert sorted(p.name for p in kept.iterdir()) == ["artifacts"]
    assert run.facts["report"]["artifact_uri"].endswith(f"{kept}/artifacts")


def test_model_files_that_are_not_wanted_stay(remote):
    study = remote(fetch_artifacts=False)
    run, _ = ends_well(study)
    assert artifacts(study, run) is None
    assert (study.jobs / run.run_id / "artifacts" / "sentiment" / "shares.json").exists()
    assert f"kept on gpu.example.org: {study.jobs / run.run_id}/artifacts" in study.log(run.run_id)


def test_a_job_directory_that_is_kept_holds_no_token(remote):
    study = remote(keep_remote=True)
    run, _ = ends_well(study)
    assert artifacts(study, run)
    kept = study.jobs / run.run_id
    assert (kept / "spec.json").exists()
    assert not (kept / "attach.json").exists()
    assert not study.account.processes("potato_training")
    assert study.account.sockets() == []


def test_a_copy_that_stalls_keeps_the_predictions(remote):
    study = remote()
    study.bounds(copy_stall_s=2)
    hostile(study, "stall")
    run, output = ends_well(study)
    assert "warning: The copy from gpu.example.org sent nothing for 2 s" in output
    assert artifacts(study, run) is None
    assert study.places.prelabels.exists()
    assert (study.jobs / run.run_id / "artifacts" / "sentiment" / "shares.json").exists()


@pytest.mark.parametrize("how", ["short", "dots", "absolute", "link", "hard", "fifo", "device", "twice", "more",
                                 "garbage", "after"])
def test_a_hostile_archive_is_refused_whole(remote, how):
    study = remote()
    hostile(study, how)
    run, output = ends_well(study)
    assert "warning: the model files from gpu.example.org were refused: " in output
    assert artifacts(study, run) is None
    assert not os.path.exists("/tmp/pt-outside")
    assert not (study.places.runs / "outside").exists()
    assert not (study.places.root / "outside").exists()
    assert not (study.places.run_dir(run.run_id) / ".artifacts.tmp").exists()


def test_events_come_while_it_trains_and_the_copy_shows_how_far_it_is(remote):
    study = remote()
    hostile(study, "halves")
    process, run_id = study.train("test-slow", steps=40, step_seconds=0.05)
    study.reaches(run_id, "running")
    study.wait_until(lambda: [e for e in study.events(run_id) if e["event"] == "progress"], "an event")
    assert not (study.jobs / run_id / "exit_code").exists(), "it came before the end"
    study.account.put(f"pt/jobs/{run_id}/artifacts/large.txt", "x" * 6_000_000)
    study.reaches(run_id, "fetching")
    half = "copying the model from gpu.example.org: 3 of 6 MB"
    study.wait_until(lambda: study.run(run_id).step == half, "half of it")
    assert half in study.potato("training", "show", "last").stdout
    study.account.put("tar.go", "")
    output, code = study.finish(process)
    assert code == 0, output
    assert "large.txt" in artifacts(study, study.ended(run_id))
    study.nothing_is_left()


def test_a_connection_lost_in_the_copy_is_made_again(remote):
    study = remote()
    study.bounds(copy_stall_s=30)
    hostile(study, "stall")
    process, run_id = study.train("test-quick")
    study.reaches(run_id, "fetching")
    study.wait_until((study.account.home / "tar.stalled").exists, "the copy")
    (study.account.home / "bin" / "tar").unlink()
    for pid in study.ssh_processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    output, code = study.finish(process)
    assert code == 0, output
    assert "copying again" in output
    assert artifacts(study, study.ended(run_id))
    study.nothing_is_left()


def test_a_venv_is_made_once_from_packages(remote, tmp_path):
    """From a wheel in a folder, so that no index is asked."""
    package = tmp_path / "tiny"
    package.mkdir()
    (package / "tiny_thing.py").write_text("VALUE = 42\n")
    (package / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='tiny-thing', version='1.0', py_modules=['tiny_thing'])\n")
    study = remote()
    wheels = study.account.home / "wheels"
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(package)],
                   check=True, capture_output=True)
    study.backend(packages=["tiny-thing==1.0"], env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)})
    run, _ = ends_well(study)
    assert "pip: " in study.log(run.run_id)
    assert "Successfully installed tiny-thing-1.0" in study.log(run.run_id)
    (venv,) = [p for p in (study.account.home / "pt" / "venvs").iterdir() if p.is_dir()]
    assert f"worker on {run.facts['machine']['host']}, Python {venv}/bin/python" in study.log(run.run_id)
    run, _ = ends_well(study)
    assert "pip: " not in study.log(run.run_id)
    study.backend(packages=["no-such-thing==1.0"])
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 1
    assert "the packages could not be installed on" in ran.stdout
    assert "No matching distribution found for no-such-thing" in ran.stdout


@pytest.mark.parametrize("how", ["cancelled", "all ssh killed"])
def test_a_silent_build_does_not_outlive_the_connection(remote, tmp_path, how):
    """pip prints nothing while a package is built; the host notices all the same that nobody listens any more."""
    study = remote()
    links = study.account.home / "links"
    setup = "import subprocess\nsubprocess.call(['sleep', '987'])\n"
    sources = io.BytesIO()
    with tarfile.open(fileobj=sources, mode="w:gz") as tar:
        about = "Metadata-Version: 1.2\nName: slow-thing\nVersion: 1.0\n"
        for name, text in (("setup.py", setup), ("PKG-INFO", about)):
            member = tarfile.TarInfo(f"slow-thing-1.0/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    study.account.put("links/x", "")
    (links / "slow-thing-1.0.tar.gz").write_bytes(sources.getvalue())
    study.backend(packages=["slow-thing==1.0"], env={
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links), "PIP_NO_BUILD_ISOLATION": "0"})
    process, run_id = study.train("test-quick")
    study.wait_until(lambda: study.account.processes("sleep 987") or study.run(run_id).over, "the build")
    assert study.account.processes("sleep 987"), study.log(run_id)
    if how == "cancelled":
        study.potato("training", "cancel", run_id, check=True)
    else:
        study.ssh_config(more="ProxyCommand false")
        for pid in study.ssh_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    study.wait_until(lambda: not study.account.processes(), "the end of pip, of what it started, and of the script")
    study.ssh_config()
    assert study.finish(process)[1] == 1
    assert study.ended(run_id).state == ("cancelled" if how == "cancelled" else "failed")
    study.nothing_is_left()


def test_code_that_is_dropped_before_the_launch_is_copied_again(remote):
    """Another server prunes it just after the probe has seen it there."""
    study = remote()
    ends_well(study)
    (copy,) = (study.account.home / "pt" / "code").glob("[0-9a-f]*")
    wrapper = study.bin / "ssh"
    forward = f'case "$*" in *"-O forward"*) mv {copy} {copy.parent}/.gone ;; esac\n'
    wrapper.write_text(wrapper.read_text().replace("exec ", forward + "exec "))
    _, output = ends_well(study)
    assert f"copied the code to {copy}" in output
    study.nothing_is_left()
