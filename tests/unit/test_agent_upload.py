"""A large body sent by the agent: over TLS 1.3, refused by its headers, and through a proxy that takes its time."""

from __future__ import annotations

import contextlib
import io
import shutil
import socket
import ssl
import subprocess
import threading

import pytest
from potato_training.worker import http_client
from potato_training.worker.http_client import Client, Unreachable
from potato_training.worker.http_tcp import tcp_connect

BODY = b"0123456789abcdef" * 200_000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        cwd=folder, capture_output=True, check=True, timeout=60)
    return folder


@pytest.fixture(params=["http", "https"])
def door(request):
    """``door(talk)``: a Client of a server that does ``talk(connection)`` with whoever comes."""
    folder = request.getfixturevalue("certificate") if request.param == "https" else None
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def open_door(talk, **options):
        def serve():
            connection = listener.accept()[0]
            if folder:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
                connection = context.wrap_socket(connection, server_side=True)
            connection.settimeout(30)
            with connection:
                talk(connection)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        connect = tcp_connect({}, str(folder / "cert.pem") if folder else None)
        return Client(f"{request.param}://localhost:{listener.getsockname()[1]}", "t", connect=connect, **options)

    yield open_door
    for thread in threads:
        thread.join(60)
    listener.close()


def head(connection):
    """The headers of a request, and what came along of its body."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536)
    return got.split(b"\r\n\r\n", 1)


def body(connection):
    got = head(connection)[1]
    while len(got) < len(BODY):
        got += connection.recv(65536)
    return got


def hold(connection):
    """Stays until the other side has gone."""
    with contextlib.suppress(OSError):
        while connection.recv(65536):
            pass


def test_a_body_arrives_whole(door):
    """With TLS 1.3 the server's tickets make the connection readable although it has answered nothing."""
    seen = []

    def talk(connection):
        seen.append(body(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"ok\":true}")

    answer = door(talk).upload("/x", io.BytesIO(BODY), len(BODY), {})
    assert answer.status == 200 and answer.json == {"ok": True}
    assert seen == [BODY]


def test_an_answer_to_the_headers_is_heard(door):
    """The body is never read; the answer is longer than what is read of it at first."""
    why = b'{"error":"%s"}' % (b"x" * 150_000)
    over = threading.Event()

    def talk(connection):
        head(connection)
        connection.sendall(b"HTTP/1.1 413 No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(why) + why)
        over.wait(60)

    answer = door(talk).upload("/x", io.BytesIO(BODY), len(BODY), {})
    over.set()
    assert answer.status == 413 and answer.body == why


def test_the_pulse_goes_on_while_a_proxy_passes_the_body_on(door, monkeypatch):
    """The answer comes later than one read may take; with a body of this size that is no fault."""
    monkeypatch.setattr(http_client, "SLOWEST_BYTES_S", 1e5)
    pulses, sent, slow = [], threading.Event(), threading.Event()

    def pulse():
        pulses.append(sent.is_set())
        if sum(pulses) >= 3:
            slow.set()

    def talk(connection):
        body(connection)
        sent.set()
        slow.wait(60)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    client = door(talk, timeout=1)
    assert client.upload("/x", io.BytesIO(BODY), len(BODY), {}, pulse).status == 200
    assert slow.is_set()


def test_a_server_that_goes_away_is_no_answer(door):
    def talk(connection):
        head(connection)

    with pytest.raises(Unreachable):
        door(talk).upload("/x", io.BytesIO(BODY), len(BODY), {})


def test_a_file_that_shrinks_is_told(door):
    with pytest.raises(Unreachable, match="shorter"):
        door(hold).upload("/x", io.BytesIO(b"ab"), 10, {})


def test_errors_of_the_file_stay_the_callers(door):
    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise PermissionError(13, "Permission denied")

    with pytest.raises(PermissionError):
        door(hold).upload("/x", Broken(), 10, {})


def test_a_try_to_connect_is_short_and_a_read_is_not(monkeypatch):
    """Where packets vanish, the next try comes while the server still waits for a word."""
    tried = []

    def vanish(address, timeout, source=None):
        tried.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(http_client.socket, "create_connection", vanish)
    with pytest.raises(Unreachable, match="no answer in time"):
        Client("http://198.51.100.1:8000", "t", timeout=15).post("/x", {})
    assert tried == [http_client.CONNECT_S] and http_client.CONNECT_S < 15


class _Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("silent_s", "ends"), [(2.0, True), (400.0, False)])
def test_an_upload_that_alone_gets_no_answer_is_not_tried_for_ever(silent_s, ends):
    """Where nothing else is answered either, it is the link's to give up."""
    from types import SimpleNamespace

    from potato_training.worker import agent_report
    from potato_training.worker.agent_link import Down

    clock = _Clock()

    def broken():
        raise Down("the connection was closed without an answer")

    upload = agent_report._Stubborn(broken, SimpleNamespace(silent_s=silent_s, give_up_s=300), clock)
    seen = []
    for _ in range(40):
        clock.now += 20
        try:
            upload()
        except Exception as error:
            seen.append(type(error).__name__)
    assert set(seen[:14]) == {"Down"}
    assert ("_NoWay" in seen) is ends
