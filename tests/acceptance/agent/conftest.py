"""A real agent in a process of its own, a real worker process, the real routes behind a real socket.

Only the intake keeps its records in memory, and the worker does what the test's plan says.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import http.client
import importlib.util
import io
import json
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from potato_training.runtime.agent_routes import make_app
from potato_training.runtime.http_server import make_server
from potato_training.runtime.listener import Listener
from potato_training.worker.jobdir import Identity, JobDir

FIXTURES = Path(__file__).parents[2] / "fixtures" / "agent"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FIXTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


memory_intake = load("memory_intake")


def tar_of(files):
    """(archive, digest of the tar) of {name: bytes}."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0), hashlib.sha256(plain.getvalue()).hexdigest()


class Bench:
    """What a test has in hand: ``job`` and ``intake`` on one side, ``jobdir`` and agents on the other."""

    def __init__(self, folder, wait_until):
        self.folder = folder
        self.wait_until = wait_until
        self.intake = memory_intake.MemoryIntake()
        self.token = secrets.token_urlsafe(32)
        self.jobdir = JobDir(folder / "job")
        self.agents = []
        self.job = None
        self._listener = None

    @property
    def listener(self):
        """The server's door, opened when it is first asked for."""
        return self._listener or self.new_listener()

    def add_job(self, plan=(), *, files=None, env=None, owner=None, **fields):
        """The job that the stub worker does by ``plan``; ``fields`` go into the job message."""
        archive, digest = tar_of(files or {"manifest.json": b"{}\n", "train.jsonl": b""})
        run_id = fields.pop("run_id", "run-1")
        bundle = self.folder / "bundle.tar.gz"
        bundle.write_bytes(archive)
        message = {
            "protocol": 1, "run_id": run_id, "attempt": 1, "trainer": "stub", "spec": {"v": 1, "run_id": run_id},
            "bundle": {"size": len(archive), "sha256": digest, "etag": digest[:16]},
            "env": {"STUB_PLAN": json.dumps(list(plan)), **(env or {})}, "python": str(self.stub()),
            "grace_seconds": 10, "heartbeat_s": 0.2, "give_up_s": 30, "max_wall_seconds": None,
            "on_disconnect": "stop", "from_the_future": {"ignored": True}, **fields,
        }
        self.job = self.intake.add(message, bundle, token=self.token, owner=owner)
        return self.job

    def stub(self, plan=None):
        """The stub worker as a program; with a plan, one that needs no variable to know it."""
        script = self.folder / ("stub-worker" if plan is None else "stub-python")
        text = (FIXTURES / "stub_worker.py").read_text("utf-8")
        if plan is not None:
            text = text.replace('os.environ["STUB_PLAN"]', repr(json.dumps(plan)))
        script.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
        script.chmod(0o700)
        return script

    def start_agent(self, *, socket=None, token=None, umask=0o022, env=None, python=sys.executable, cwd=None, **more):
        """An agent process on the job directory; its hello, with ``more``, is written and its stdin stays open."""
        agent = subprocess.Popen(
            [python, "-m", "potato_training.worker.agent", "--job-dir", self.jobdir.root],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, umask=umask,
            env={**os.environ, **(env or {})}, start_new_session=True, cwd=cwd,
        )
        self.agents.append(agent)
        hello = {"socket": str(socket or self.listener.socket), "token": token or self.token, **more}
        agent.stdin.write(json.dumps(hello).encode() + b"\n")
        agent.stdin.flush()
        agent.greeting = agent.stdout.readline().decode().strip()
        return agent

    def start_poll(self, server, *arguments, plan=(), token=None, env=None):
        """An agent that polls, with its folder in ``home``; the plan is that of the interpreter it is given."""
        own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        agent = subprocess.Popen(
            [sys.executable, "-m", "potato_training.worker.agent", "--server", server, "--backend", "lab",
             "--workdir", str(self.folder / "home"), "--python", str(self.stub(list(plan))), *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env={**own, "POTATO_TRAINING_TOKEN": self.token if token is None else token, **(env or {})},
        )
        self.agents.append(agent)
        return agent

    def run(self, plan, **fields):
        """A whole job with one agent; (job, agent) after the agent's end."""
        job = self.add_job(plan, **fields)
        agent = self.start_agent()
        assert agent.wait(60) == 0, agent.stderr.read().decode()
        return job, agent

    def new_listener(self):
        """The server's door at another place, as after a new login."""
        self._listener = Listener(make_app(self.intake))
        self._listener.start()
        return self._listener

    def wait_for_worker_event(self, **fields):
        def seen():
            return next((e for e in self.job.worker_events if fields.items() <= e.items()), None)

        return self.wait_until(seen, f"an event with {fields}")

    def wait_for_result(self):
        return self.wait_until(lambda: self.job.result, "the result")

    @property
    def worker(self):
        return Identity.from_json(self.jobdir.read_json("worker.json"))

    def said(self, part):
        """True when the agent's stream has a message with this part."""
        return any(part in str(e.get("msg") or e.get("message") or "") for e in self.job.agent_events)

    def close(self):
        for agent in self.agents:
            if agent.poll() is None:
                agent.kill()
            agent.communicate()
        if self.worker is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.worker.pgid, signal.SIGKILL)
        if self._listener is not None:
            self._listener.stop()


@pytest.fixture
def bench(tmp_path, wait_until):
    bench = Bench(tmp_path, wait_until)
    yield bench
    bench.close()


class Switch:
    """Stands before the intake of the test that is on."""

    current = None

    def __getattr__(self, name):
        return getattr(self.current, name)


@pytest.fixture(scope="session")
def tcp_server():
    """``tcp_server(intake)``: the URL of a server whose routes ask this intake from now on."""
    switch = Switch()
    server = make_server(make_app(switch, retry_after_s=7), ("127.0.0.1", 0), threads=3)
    server.prepare()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()

    def serve(intake):
        switch.current = intake
        return "http://{}:{}".format(*server.bind_addr)

    yield serve
    server.stop()
    thread.join(10)


@pytest.fixture(scope="session")
def modes():
    """``modes(folder)``: {path: mode} of everything below, symbolic links not followed."""

    def look(folder):
        found = {}
        for path in [Path(folder), *Path(folder).rglob("*")]:
            found[str(path)] = stat.S_IMODE(path.lstat().st_mode)
        return found

    return look


# --- somebody who is not our agent -----------------------------------------------------------------


class Server:
    def __init__(self, bench, address):
        self.bench, self.intake, self.job = bench, bench.intake, bench.job
        self.address = address
        self.connection = http.client.HTTPConnection(*address, timeout=30)

    def ask(self, method, path, body=None, token="", headers=None, **more):
        token = self.bench.token if token == "" else token
        everything = {} if token is None else {"Authorization": f"Bearer {token}"}
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        self.connection.request(method, path, body, {**everything, **(headers or {})}, **more)
        answer = self.connection.getresponse()
        text = answer.read()
        kept = {name.lower(): value for name, value in answer.getheaders() if name != "Date"}
        return answer.status, kept, json.loads(text) if text.startswith(b"{") else text

    def raw(self, data, *, answers=True):
        """Sends bytes as they are on a connection of their own; the answer until the server closes it."""
        with socket.create_connection(self.address, timeout=30) as sock:
            for block in data:
                try:
                    sock.sendall(block)
                except OSError:
                    break
            answer = b""
            while block := sock.recv(65536):
                answer += block
        return answer

    @staticmethod
    def digest(data):
        """The Content-Digest of these bytes."""
        return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"

    def head(self, method, path, **headers):
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.bench.token}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.fixture
def server(bench, tcp_server):
    """``server.ask(method, path, body, ...)`` gives (status, headers, body)."""
    bench.add_job([])
    url = urlsplit(tcp_server(bench.intake))
    server = Server(bench, (url.hostname, url.port))
    yield server
    server.connection.close()
