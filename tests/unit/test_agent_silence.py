"""Whoever stands between agent and server may take a connection and never answer: how long that holds the agent."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import SimpleNamespace

import pytest
from potato_training.worker.agent_bundle import Fetch, NoBundle
from potato_training.worker.http_client import Client, Unreachable
from potato_training.worker.http_tcp import tcp_connect
from potato_training.worker.jobdir import JobDir

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
SHORT = 0.2  #: the client's time-out


class Swallower:
    """Takes one connection and all that comes over it. ``hung_up`` is set when the other side has had enough."""

    def __init__(self, says=b"", drips=b""):
        self._says, self._drips = says, drips
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.hung_up = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._swallow, daemon=True).start()

    def _swallow(self):
        connection = self._listener.accept()[0]
        threading.Thread(target=self._take, args=(connection,), daemon=True).start()
        with contextlib.suppress(OSError):
            connection.sendall(self._says)
            while self._drips and not self._closed.wait(SHORT / 5):  # each byte comes in time
                connection.sendall(self._drips)

    def _take(self, connection):
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                pass
        self.hung_up.set()

    def close(self):
        self._closed.set()
        self._listener.close()


@pytest.fixture
def swallower():
    made = []

    def make(**options):
        made.append(Swallower(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def gives_up(client, swallower):
    """Without a bound the request would never come back, and neither would this."""
    ended = []

    def ask():
        with pytest.raises(Unreachable) as error:
            client.post("/api/training/v1/claim", {"agent_id": "a"})
        ended.append(str(error.value))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert swallower.hung_up.wait(60), "it holds the agent"
    asking.join(60)
    assert ended == ["no answer in time"], "by our bound and by no other"


@pytest.mark.parametrize("way", [
    {}, {"says": HEAD}, {"says": b"HTTP/1.1 100 Continue\r\n\r\n"}, {"drips": b"H"}, {"says": HEAD, "drips": b"{"},
    {"says": b"HTTP/1.1 200 OK\r\n", "drips": b"X: y\r\n"}, {"drips": b"HTTP/1.1 100 Continue\r\n\r\n"},
], ids=["nothing", "a head", "continue", "a byte now and then", "a body byte by byte", "headers", "continue for ever"])
def test_an_answer_that_never_comes_or_never_ends(swallower, way):
    there = swallower(**way)
    gives_up(Client(f"http://{there.address}", "t", timeout=SHORT), there)


def test_a_handshake_and_a_proxy_that_never_answer(swallower):
    there = swallower()
    gives_up(Client(f"https://{there.address}", "t", timeout=SHORT, connect=tcp_connect({})), there)
    for says, drips in ((b"", b""), (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n")):
        there = swallower(says=says, drips=drips)
        through = tcp_connect({"https_proxy": f"http://{there.address}"})
        gives_up(Client("https://server.invalid", "t", timeout=SHORT, connect=through), there)


def test_a_download_may_take_long_and_each_part_of_it_not(swallower):
    there = swallower(says=HEAD, drips=b"x")
    with Client(f"http://{there.address}", "t", timeout=SHORT).download("/bundle", {}) as answer:
        got = b"".join(answer.read() for _ in range(15))  # three times as long as one read may take
    assert set(got) == set(b"x")
    there = swallower(says=HEAD + b"x")
    with Client(f"http://{there.address}", "t", timeout=SHORT).download("/bundle", {}) as answer:
        assert answer.read() == b"x"
        with pytest.raises(Unreachable):
            answer.read()
    assert there.hung_up.wait(60)


def test_between_two_attempts_at_a_bundle_the_server_hears_of_the_agent(tmp_path):
    """Five downloads that swallow their bodies must not add up to a silence."""
    told = []

    class Answer:
        status, headers = 200, {"ETag": '"e"'}
        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *_: None  # noqa: E731

        def read(self):
            raise Unreachable("no answer in time")

    client = SimpleNamespace(download=lambda path, headers: told.append("attempt") or Answer(), close=lambda: None)
    link = SimpleNamespace(ready=lambda: True, client_apart=lambda: client, answered=lambda: None)
    job = SimpleNamespace(run_id="r", bundle_size=10, bundle_etag="e", bundle_sha256="0" * 64)
    fetch = Fetch(link, job, JobDir(tmp_path), pulse=lambda: told.append("pulse"), wait=lambda: None)
    with pytest.raises(NoBundle, match="5 attempts: no answer in time after 0 bytes"):
        fetch.run()
    assert told == ["attempt", "pulse"] * 5
