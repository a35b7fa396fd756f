"""What others on either machine can see of a run: not its token, and no door but the agent's."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.real


@pytest.fixture
def running(remote):
    study = remote()
    # ssh says all that it can: its output must not hold the token either
    wrapper = study.bin / "ssh"
    wrapper.write_text(wrapper.read_text().replace('"$@"', f'-vvv -E {study.root}/ssh.log "$@"'))
    process, run_id = study.train("test-slow", steps=100000, step_seconds=0.05)
    study.reaches(run_id, "running")
    attach = json.loads((study.jobs / run_id / "attach.json").read_text())
    yield study, run_id, attach
    study.potato("training", "cancel", run_id, check=True)
    study.finish(process)
    study.ended(run_id)
    study.nothing_is_left()
    assert not Path(attach["socket"]).parent.exists()


def test_the_token_is_found_nowhere(running):
    study, run_id, attach = running
    token = attach["token"].encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        for what in ("cmdline", "environ"):
            try:
                assert token not in Path(f"/proc/{name}/{what}").read_bytes(), (name, what)
            except OSError:
                continue
    seen = 0
    for folder in (study.root, study.jobs / run_id):
        for path in folder.rglob("*"):
            if path.is_file() and path.name != "attach.json":
                seen += 1
                assert token not in path.read_bytes(), path
    assert seen > 20
    assert (study.root / "ssh.log").stat().st_size > 10_000
    assert token not in study.sshd.log.read_bytes()


def test_the_socket_and_the_job_are_the_accounts_own(running):
    study, run_id, attach = running
    path = Path(attach["socket"])
    found = path.lstat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert stat.S_IMODE(path.parent.lstat().st_mode) == 0o700
    assert found.st_uid == study.account.uid
    job = study.jobs / run_id
    for path in (job, *job.rglob("*")):
        assert path.lstat().st_mode & 0o077 == 0 or path.is_symlink(), path


def test_the_tunnel_is_the_agents_door_and_nothing_else(running):
    """Whoever holds the socket gets agent routes only, and those with the run's token."""
    _, run_id, attach = running

    def ask(request):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(attach["socket"])
            s.sendall(request.encode())
            return s.makefile("rb").readline().decode()

    for path in ("/", "/admin", "/training", "/metrics", "/api/training/v1/", "/static/x"):
        assert " 404 " in ask(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"), path
    path = f"/api/training/v1/jobs/{run_id}/events"
    assert " 401 " in ask(f"POST {path} HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}")


ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
else:
    s.sendall(sys.stdin.buffer.read())
    print(s.makefile("rb").readline().decode())
"""


def asked(account, path, request):
    """What the socket answers to a process of this account."""
    done = subprocess.run(["su", account.name, "-s", "/bin/sh", "-c", f'exec /usr/bin/python3 -c "$0" {path}', ASK],
                          input=request.encode(), capture_output=True, check=True)
    return done.stdout.decode()


def test_debug_gives_the_tunnel_nothing(remote, lab):
    """Whoever sits at the server needs no key then; whoever is on the host has the agent's door, as ever."""
    import re
    import urllib.request

    import yaml

    study = remote()
    config = yaml.safe_load(study.config.read_text())
    study.config.write_text(yaml.safe_dump({**config, "debug": True}, sort_keys=False))
    server = study.start("training", "serve", "-p", "0")
    said = ""
    while "Training page:" not in said:
        line = server.stdout.readline()
        assert line, said
        said += line
    page = re.search(r"http://\S+", said)[0]
    with urllib.request.urlopen(page, timeout=60) as answer:    # no key
        assert answer.status == 200
        assert "sentiment" in answer.read().decode()
    process, run_id = study.train("test-slow", steps=100000, step_seconds=0.05)
    study.reaches(run_id, "running")
    socket_there = json.loads((study.jobs / run_id / "attach.json").read_text())["socket"]
    path = "/" + page.split("/", 3)[3]
    for host in ("localhost", "127.0.0.1", page.split("/")[2]):
        for method, target in (("GET", path), ("GET", f"{path}/api/runs"), ("POST", f"{path}/api/runs/{run_id}/cancel"),
                               ("GET", "/metrics")):
            request = (f"{method} {target} HTTP/1.0\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
                       "X-Forwarded-For: 127.0.0.1\r\nContent-Length: 0\r\n\r\n")
            assert " 404 " in asked(study.account, socket_there, request), (method, target, host)
    assert " 400 " in asked(study.account, socket_there, f"GET {page} HTTP/1.0\r\nHost: localhost\r\n\r\n")
    events = f"/api/training/v1/jobs/{run_id}/events"
    request = f"POST {events} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}"
    assert " 401 " in asked(study.account, socket_there, request)
    # another account of the host does not even reach it
    assert asked(lab.account("dash"), socket_there, request).strip() == "PermissionError"
    assert study.run(run_id).state == "running"
    study.potato("training", "cancel", run_id, check=True)
    study.finish(process)
    server.terminate()
    server.communicate(timeout=60)
    study.ended(run_id)
    study.nothing_is_left()


def test_num_threads_goes_over_the_login_shells_own(remote):
    study = remote("threads", num_threads=3)
    assert study.potato("training", "run", "--trainer", "test-quick", check=True)
    assert "3 threads" in study.log(study.runs()[0].run_id)
    study.nothing_is_left()


def test_the_login_shells_own_threads_are_seen_without_it(remote):
    study = remote("threads")
    assert study.potato("training", "run", "--trainer", "test-quick", check=True)
    assert "1 threads" in study.log(study.runs()[0].run_id)


def test_compile_shows_what_the_run_has_executed(remote):
    study = remote()
    study.potato("training", "run", "--trainer", "test-quick", check=True)
    ran = study.potato("compile", "--diff", "last")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no difference" in ran.stderr
    study.backend(num_threads=2)
    ran = study.potato("compile", "--diff", "last")
    assert ran.returncode == 1
    assert "+export OMP_NUM_THREADS='2'" in ran.stdout


def test_a_host_that_looks_like_an_option_is_refused(remote, tmp_path):
    study = remote(host=f"-oProxyCommand=touch {tmp_path}/pwned")
    ran = study.potato("training", "check", "gpu-server")
    assert ran.returncode != 0
    assert not (tmp_path / "pwned").exists()
    done = subprocess.run([str(study.bin / "ssh"), "--", f"-oProxyCommand=touch {tmp_path}/pwned"], capture_output=True)
    assert done.returncode == 255
    assert not (tmp_path / "pwned").exists()
