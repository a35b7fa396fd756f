"""The way from the agent to its server: TLS, proxies, prefixes, and connections that somebody swallows."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import threading

import pytest
from potato_training.runtime.protocol_types import Principal

LAB = Principal("backend", "lab")
RUNNING = ["event", "status", {"state": "running"}]
PLAN = [RUNNING, ["predictions", "p\n"], ["exit", 0]]


@pytest.fixture
def server(bench, tcp_server):
    bench.intake.tokens[bench.token] = LAB
    return tcp_server(bench.intake)


class Relay:
    """Carries connections from one port to another, through TLS when it has a context, as a proxy would."""

    def __init__(self, port, target, context=None):
        self.seen = []
        self.swallowing = False
        self.swallowed = 0  #: connections over which something came that was kept from the server
        self._target, self._context = target, context
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near):
        try:
            if self._context is not None:
                near = self._context.wrap_socket(near, server_side=True)
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        threading.Thread(target=self._pump, args=(far, near), daemon=True).start()
        self._pump(near, far, note=True)

    def _pump(self, source, sink, note=False):
        kept = False
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                kept = kept or self.swallowing
                if kept:
                    self.swallowed += note
                    note = False
                    continue
                if note:
                    self.seen.append(data)
                    data = data.replace(b" http://training.invalid:8000/", b" /")
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        cwd=folder, capture_output=True,
    )
    if made.returncode != 0:
        pytest.skip("needs openssl 1.1.1 or newer")
    return folder


@pytest.fixture
def tls(certificate, server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    relay = Relay(0, int(server.rpartition(":")[2]), context)
    yield relay
    relay.close()


def test_a_ca_of_ones_own(bench, tls, certificate):
    bench.add_job(owner=LAB)
    address = f"https://localhost:{tls.port}"
    agent = bench.start_poll(address, "--once", "--ca-file", certificate / "cert.pem", plan=PLAN)
    assert agent.wait(60) == 0
    assert bench.job.result["exit_code"] == 0


def test_an_unknown_certificate_is_named_and_never_passed_over(bench, tls):
    bench.add_job(owner=LAB)
    agent = bench.start_poll(f"https://localhost:{tls.port}", plan=PLAN)
    os.set_blocking(agent.stderr.fileno(), False)
    said = []
    bench.wait_until(
        lambda: said.append(agent.stderr.read() or b"") or b"--ca-file" in b"".join(said), "the line about it"
    )
    assert b"certificate is not trusted" in b"".join(said)
    assert bench.job.claims == []


def test_https_where_http_is_spoken_is_one_clear_line(bench, tcp_server):
    address = tcp_server(bench.intake).replace("http://", "https://")
    agent = bench.start_poll(address, plan=PLAN)
    os.set_blocking(agent.stderr.fileno(), False)
    said = []
    bench.wait_until(lambda: said.append(agent.stderr.read() or b"") or b"trying again" in b"".join(said), "the line")
    assert b"there is no TLS at that address; does the server go by http:// there?" in b"".join(said)


def test_a_reason_that_changes_is_told_again(bench, server, certificate):
    """First nobody listens, then somebody with a certificate that is not trusted."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        agent = bench.start_poll(f"https://localhost:{port}", plan=PLAN)
        os.set_blocking(agent.stderr.fileno(), False)
        said = []
        look = lambda word: said.append(agent.stderr.read() or b"") or word in b"".join(said)  # noqa: E731
        bench.wait_until(lambda: look(b"trying again"), "the first reason")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    relay = Relay(port, int(server.rpartition(":")[2]), context)
    try:
        bench.wait_until(lambda: look(b"certificate is not trusted"), "the second")
    finally:
        relay.close()


def test_a_proxy_from_the_environment_is_used(bench, server):
    """The proxy is asked for the whole URL; ours hands the rest of it on."""
    bench.add_job(owner=LAB)
    relay = Relay(0, int(server.rpartition(":")[2]))
    try:
        agent = bench.start_poll(
            "http://training.invalid:8000", "--once", plan=PLAN,
            env={"http_proxy": f"http://ada:pass%20word@127.0.0.1:{relay.port}"},
        )
        assert agent.wait(60) == 0
    finally:
        relay.close()
    first = relay.seen[0]
    assert first.startswith(b"POST http://training.invalid:8000/api/training/v1/claim HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic YWRhOnBhc3Mgd29yZA==\r\n" in first
    assert b"Host: training.invalid:8000\r\n" in first


def test_a_prefix_in_the_servers_url_is_kept(bench, server):
    relay = Relay(0, int(server.rpartition(":")[2]))
    try:
        bench.start_poll(f"http://127.0.0.1:{relay.port}/potato/", plan=PLAN)
        bench.wait_until(lambda: relay.seen, "a request")
    finally:
        relay.close()
    assert relay.seen[0].startswith(b"POST /potato/api/training/v1/claim ")


def test_a_server_that_is_away_is_waited_for(bench, server, tcp_server):
    bench.add_job(owner=LAB)
    port = int(server.rpartition(":")[2])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        away = taken.getsockname()[1]
        agent = bench.start_poll(f"http://127.0.0.1:{away}", "--once", plan=PLAN)
        os.set_blocking(agent.stderr.fileno(), False)
        bench.wait_until(lambda: b"trying again until there is" in (agent.stderr.read() or b""), "the line about it")
    relay = Relay(away, port)
    try:
        assert agent.wait(90) == 0
    finally:
        relay.close()
    assert bench.job.result["exit_code"] == 0


def test_connections_that_are_swallowed_in_the_middle_of_a_run(bench, server):
    """Taken, and never answered: the one that is kept and the next. Each is given up, and the run goes on."""
    job = bench.add_job(owner=LAB, give_up_s=16)
    relay = Relay(0, int(server.rpartition(":")[2]))
    try:
        plan = [RUNNING, ["wait_file", "go"], *PLAN[1:]]
        agent = bench.start_poll(f"http://127.0.0.1:{relay.port}", "--once", plan=plan)
        bench.wait_for_worker_event(event="status")
        relay.swallowing = True
        bench.wait_until(lambda: relay.swallowed >= 2, "a second connection, the first being given up")
        relay.swallowing = False
        batches = job.batches
        bench.wait_until(lambda: job.batches > batches, "a word after that")
        (bench.folder / "home" / "lab" / "jobs" / "run-1" / "go").touch()
        assert agent.wait(60) == 0
    finally:
        relay.close()
    assert (job.result["exit_code"], job.result["reason"]) == (0, "finished")
