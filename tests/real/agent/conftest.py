"""A server and an agent that are not on one network: behind a NAT of network namespaces, or behind nginx."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parents[1]


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


helpers = load("acceptance_helpers", TESTS / "acceptance" / "conftest.py")
wire = load("wire", HERE / "wire.py")
EVERYWHERE = {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}


class Far:
    """A study whose server and whose agents are each started by a prefix of their own (a namespace, or none).

    ``address`` is the server's as the agent knows it.
    """

    def __init__(self, study, folder, *, at_server=(), at_agent=(), address="", listen=("127.0.0.1", 0)):
        self.study, self.folder = study, folder
        self._at_server, self._at_agent = list(at_server), list(at_agent)
        self.address, self.listen = address, listen
        self.study.env.update(EVERYWHERE)
        printed = study.potato("training", "register", "station", check=True).stdout
        self.token = re.search(r"^  ([A-Za-z0-9_-]{40,})$", printed, re.MULTILINE)[1]
        self.server = None

    def _start(self, argv, **options):
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        )
        self.study.started.append(process)
        return process

    def serve(self, *more):
        host, port = self.listen
        argv = self.study.argv("training", "serve", "--host", host, "-p", port, *more)
        log = (self.folder / "server.log").open("a")
        with log:
            self.server = subprocess.Popen(
                [*self._at_server, *argv], cwd=self.study.root, env=self.study.env, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, text=True,
            )
        self.study.started.append(self.server)
        ask = ("import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()", host, port)

        def up():
            assert self.server.poll() is None, (self.folder / "server.log").read_text()
            return subprocess.run(
                [*self._at_server, sys.executable, "-c", *map(str, ask)], capture_output=True, timeout=60
            ).returncode == 0

        self.study.wait_until(up, "the server")
        return self

    def agent(self, *more, name="agent", env=None):
        python = self.folder / "python"
        trainers = shlex.quote(str(TESTS / "fixtures" / "trainers"))
        python.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{trainers} exec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
        own = {key: value for key, value in self.study.env.items() if not key.lower().endswith("_proxy")}
        argv = [sys.executable, "-m", "potato_training.worker.agent_poll", "--server", self.address, "--backend",
                "station", "--workdir", str(self.folder / name), "--python", str(python), *map(str, more)]
        return self._start([*self._at_agent, *argv], env={**own, "POTATO_TRAINING_TOKEN": self.token, **(env or {})})

    # --- what a test looks at ---------------------------------------------------------------------------

    def job(self, run_id, name="agent"):
        """The run's directory on the agent's side."""
        return self.folder / name / "station" / "jobs" / run_id

    def said(self, run_id, word, name="agent"):
        """How many lines of the agent's own stream hold ``word``; read on its side, whatever has arrived."""
        path = self.job(run_id, name) / "agent.jsonl"
        return sum(word in line for line in path.read_text().splitlines()) if path.exists() else 0

    def fetched(self, run_id, name="agent"):
        """Bytes of the bundle that are on the agent's side."""
        try:
            return (self.job(run_id, name) / "bundle.tar.gz.part").stat().st_size
        except OSError:
            return 0

    def claimable(self, run_id):
        self.study.wait_until(lambda: self.study.run(run_id).facts.get("claimable"), "the bundle")


@pytest.fixture(scope="session")
def far_class():
    return Far


@pytest.fixture(scope="session")
def network():
    missing = [name for name in ("ip", "nft", "sysctl") if shutil.which(name, path=EVERYWHERE["PATH"]) is None]
    if missing:
        pytest.skip(f"no NAT to test behind: {', '.join(missing)} not installed (iproute2, nftables, procps)")
    try:
        built = wire.Network()
    except wire.NoNamespaces as problem:
        pytest.skip(f"no NAT to test behind: {problem}")
    yield built
    built.close()


@pytest.fixture
def far_study(project, write_project, wait_until, tmp_path):
    """``far_study(items=..., **backend keys)``: a Study with the backend ``station``; many items make a big bundle."""
    made = []

    def make(items=0, bounds=None, **keys):
        root = project("review-project")
        publish = {"schemas": ["sentiment"], "include_unlabeled": True, "min_confidence": 0}
        if items:
            texts = [os.urandom(150).hex() for _ in range(items)]
            answers = {"ada": {f"i{n}": {"sentiment": "positive" if n % 3 else "negative"} for n in range(1, 60)}}
            shutil.rmtree(root)
            write_project(root, texts, answers)
        study = helpers.Study(root, wait_until)
        study.configure(grace_seconds=3, writeback=publish, backends={"station": {"type": "agent", **keys}})
        if bounds:
            study.bounds(**bounds)
        made.append(study)
        return study

    yield make
    for study in made:
        study.close()


@pytest.fixture
def behind_nat(network, far_study, tmp_path):
    """``behind_nat(...)``: a Far whose server is outside and whose agents are inside."""

    def make(**options):
        study = far_study(**options)
        return Far(
            study, tmp_path, at_server=network.within(network.server, []), at_agent=network.within(network.lab, []),
            address=f"http://{wire.SERVER}:8000", listen=("0.0.0.0", 8000),
        )

    yield make
    network.mend()
    network.remember()
