"""The server behind nginx: TLS, buffering both ways as it comes, and connections that are closed when idle."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

TO_STATION = ("--backend", "station")
PROGRAM = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

CONF = """\
daemon off; master_process off; worker_processes 1; error_log {root}/error.log; pid {root}/pid;
events {{}}
http {{
  access_log {root}/access.log;
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/f;
  uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
  client_max_body_size {most};
  keepalive_timeout {idle}s; proxy_read_timeout {idle}s; proxy_send_timeout {idle}s; send_timeout {idle}s;
  server {{
    listen 127.0.0.1:{port} ssl; ssl_protocols TLSv1.2 TLSv1.3;
    ssl_certificate {root}/cert.pem; ssl_certificate_key {root}/key.pem;
    location / {{
      proxy_pass http://127.0.0.1:{upstream};
      proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
    }}
  }}
}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def certificate(folder, name):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "2", "-keyout", f"{name}key.pem", "-out", f"{name}cert.pem", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost"], cwd=folder, capture_output=True, check=True, timeout=60)


class Nginx:
    def __init__(self, wait_until, upstream, *, idle=2, most="1m"):
        self.root = Path(tempfile.mkdtemp(prefix="potato-nginx-"))
        self.port = free_port()
        certificate(self.root, "")
        certificate(self.root, "other-")
        conf = self.root / "nginx.conf"
        conf.write_text(CONF.format(root=self.root, port=self.port, upstream=upstream, idle=idle, most=most))
        with (self.root / "out").open("wb") as out:
            self.process = subprocess.Popen(
                [PROGRAM, "-p", str(self.root), "-c", str(conf), "-e", str(self.root / "error.log")],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out)

        def up():
            assert self.process.poll() is None, (self.root / "out").read_text() + self.errors()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(up, "nginx")

    def errors(self):
        path = self.root / "error.log"
        return path.read_text() if path.exists() else ""

    def asked(self):
        """(request, status) of every request so far."""
        lines = (self.root / "access.log").read_text().splitlines()
        return [(line.split('"')[1], int(line.split('"')[2].split()[0])) for line in lines]

    def close(self):
        self.process.terminate()
        self.process.wait(60)
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture
def proxied(far_study, tmp_path, wait_until, far_class):
    """``proxied({nginx settings}, ...)``: a Far whose server is reached through nginx only."""
    if PROGRAM is None or shutil.which("openssl") is None:
        pytest.skip("not installed: nginx (Debian: nginx-light) or openssl")
    started = []

    def make(settings=None, **options):
        port = free_port()
        proxy = Nginx(wait_until, port, **(settings or {}))
        started.append(proxy)
        far = far_class(far_study(**options), tmp_path, address=f"https://localhost:{proxy.port}",
                        listen=("127.0.0.1", port))
        far.proxy = proxy
        return far.serve("--behind-proxy")

    yield make
    for proxy in started:
        proxy.close()


def run_through(far, trainer="test-quick", **params):
    process, run_id = far.study.train(trainer, *TO_STATION, **params)
    agent = far.agent("--once", "--ca-file", far.proxy.root / "cert.pem")
    output, code = far.study.finish(process)
    assert code == 0, output
    assert agent.wait(90) == 0
    return far.study.ended(run_id)


def read_some(process):
    try:
        return os.read(process.stdout.fileno(), 65536)
    except BlockingIOError:
        return b""


def test_a_run_through_a_proxy_that_closes_idle_connections(proxied):
    """The agent is silent for longer than the proxy keeps a connection, again and again."""
    far = proxied({"idle": 1})
    run = run_through(far, "test-slow", steps=8, step_seconds=0.7)
    assert run.state == "succeeded"
    assert far.study.places.prelabels.exists()
    asked = far.proxy.asked()
    assert all(status in (200, 204) for _, status in asked), asked
    assert any(line.startswith("PUT ") for line, _ in asked)


def test_a_bundle_and_predictions_larger_than_the_proxy_keeps_in_memory(proxied):
    far = proxied(settings={"most": "20m"}, items=6000)
    run = run_through(far)
    assert run.state == "succeeded"
    assert run.facts["predictions"]["bytes"] > 500_000


def test_a_proxy_that_takes_no_large_bodies_is_named(proxied):
    """nginx's own 413 is a page, not our server's word; the run ends with that reason and not in silence."""
    far = proxied(settings={"most": "100k"}, items=3000, bounds={"agent_give_up_s": 4}, heartbeat_timeout_s=4)
    process, run_id = far.study.train("test-quick", *TO_STATION)
    agent = far.agent("--ca-file", far.proxy.root / "cert.pem")
    output, code = far.study.finish(process)
    assert code == 1
    assert ("PUT", 413) in [(line.split()[0], status) for line, status in far.proxy.asked()]
    assert "too large" in output or "413" in output, output
    agent.terminate()
    agent.wait(60)
    assert far.study.ended(run_id).state == "failed"


def test_a_server_that_is_down_behind_its_proxy_is_waited_for(proxied):
    """502 pages meanwhile are no answer of the server's."""
    far = proxied()
    process, run_id = far.study.train("test-slow", *TO_STATION, steps=80, step_seconds=0.05)
    agent = far.agent("--once", "--ca-file", far.proxy.root / "cert.pem")
    far.study.reaches(run_id, "running")
    far.server.kill()
    far.server.wait()
    far.study.wait_until(lambda: 502 in [status for _, status in far.proxy.asked()], "a page of nginx's own")
    far.serve("--behind-proxy")
    output, code = far.study.finish(process)
    agent.terminate()
    assert code == 0, output + agent.communicate(timeout=90)[0]


@pytest.mark.parametrize("trusts", ["nobody", "another"])
def test_a_certificate_that_is_not_trusted_is_one_clear_line(proxied, trusts):
    far = proxied()
    more = ("--ca-file", far.proxy.root / "other-cert.pem") if trusts == "another" else ()
    agent = far.agent(*more)
    seen = []
    os.set_blocking(agent.stdout.fileno(), False)
    far.study.wait_until(lambda: seen.append(read_some(agent)) or b"--ca-file" in b"".join(seen), "the line")
    agent.terminate()
    agent.wait(60)
    lines = [line for line in b"".join(seen).decode().splitlines() if "certificate" in line]
    assert len(lines) == 1, "said once, not at every try"
    assert "the server's certificate is not trusted" in lines[0]
    assert far.proxy.asked() == [], "not a byte of a request, and no token, went to a stranger"
