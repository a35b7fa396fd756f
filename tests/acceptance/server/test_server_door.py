"""Who comes in: keys, cookies, hosts, origins, debug, and the headers that every answer has."""

from __future__ import annotations

import contextlib
import re
import socket
from urllib.parse import urlencode

import pytest

EVIL = "http://evil.example"


@pytest.fixture
def site(server):
    return server()


def test_the_key_opens_and_nothing_else_does(site):
    assert site.get("api/status").status == 200
    for headers in ({}, {"Authorization": "Bearer the key of the tests"}):
        refused = site.get("api/status", key=None, **headers)
        assert refused.status == 401
        assert refused.json["error"] == "sign in first"
    assert site.get("api/status?api_key=the+key+of+the+tests", key=None).status == 401
    assert site.get("api/status", key="another").status == 401
    assert site.get("/metrics", key=None).status == 401
    assert site.post("api/runs", {}, key=None).status == 401


def test_a_person_is_sent_to_the_login_and_back(site):
    sent = site.get("/admin/training?q=two+words&by=score", key=None)
    wanted = "/admin/training?q=two+words&by=score"
    assert sent.headers["Location"] == "/admin/training/login?" + urlencode({"next": wanted})
    back = site.post("login", form={"key": "the key of the tests", "next": wanted}, key=None)
    assert back.headers["Location"] == wanted
    sent = site.get("runs/x?q=1", key=None)
    assert sent.status == 303
    assert sent.headers["Location"] == "/admin/training/login?next=%2Fadmin%2Ftraining%2Fruns%2Fx%3Fq%3D1"
    back = site.post("login", form={"key": "the key of the tests", "next": "/admin/training/runs/x?q=1"}, key=None)
    assert back.status == 303
    assert back.headers["Location"] == "/admin/training/runs/x?q=1"


@pytest.mark.parametrize("next_", [
    "//evil.example", "http://evil.example", "/admin/training//evil", "/\\evil", "/admin/training\r\nX: y",
    "/admin/training.evil.example",
])
def test_the_login_leads_nowhere_else(site, next_):
    answer = site.post("login", form={"key": "the key of the tests", "next": next_}, key=None)
    assert answer.headers["Location"] == "/admin/training"


def test_the_cookie(site):
    answer = site.sign_in()
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Path=/" in cookie
    assert "the key" not in cookie
    assert site.get("", key=None).status == 200
    assert site.get("api/status", key=None).status == 200
    name = site.cookie.partition("=")[0]
    site.cookie = site.cookie[:-3] + "abc"
    assert site.get("api/status", key=None).status == 401
    site.cookie = f"{name}=x"
    assert site.get("", key=None).status == 303


def test_signing_out(site):
    site.sign_in()
    answer = site.post("logout", form={}, key=None, **site.own)
    assert answer.status == 303
    assert re.search(r"Max-Age=0|expires=Thu, 01 Jan 1970", answer.headers["Set-Cookie"], re.IGNORECASE)


def test_a_cookie_outlives_a_restart_and_no_change_of_the_key(server, study):
    site = server()
    site.sign_in()
    cookie = site.cookie
    site.stop()
    again = server()
    again.cookie = cookie
    assert again.get("api/status", key=None).status == 200
    again.stop()
    other = server(key="another key")
    other.cookie = cookie
    assert other.get("api/status", key=None).status == 401


def test_guessing_is_slowed_down(site):
    for _ in range(5):
        assert site.sign_in("wrong").status == 403
    refused = site.sign_in()
    assert refused.status == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 61
    # whoever is in already is not kept out, and the header is counted like the form
    assert site.get("api/status").status == 429


def test_without_a_key_one_is_made_and_printed(server):
    site = server(key=None)
    lines = [site.process.stdout.readline() for _ in range(4)]
    key = lines[2].strip()
    assert len(key) >= 40, lines
    assert site.get("api/status", key=key).status == 200
    assert site.get("api/status").status == 401


def test_the_key_may_be_in_the_environment(server):
    site = server(config={"admin_api_key": "${STUDY_KEY}"}, env={"STUDY_KEY": "from outside"})
    assert site.get("api/status", key="from outside").status == 200
    assert site.get("api/status", key="${STUDY_KEY}").status == 401


# --- names and origins -----------------------------------------------------------------------------


@pytest.mark.parametrize("host", [
    "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "", "a b", "127.0.0.1@evil",
])
@pytest.mark.parametrize("debug", [False, True])
def test_a_foreign_host_is_refused(server, host, debug):
    site = server(config={"debug": debug})
    for path in ("", "login", "api/status", "static/page.css", "/", "/metrics", "/nothing"):
        answer = site.get(path, host=host or "\t")
        assert answer.status in (400, 403), path
    assert site.post("api/runs", {}, host=host or "\t").status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "[::1]:1", "127.0.0.1", "LOCALHOST."])
def test_our_own_names(site, host):
    assert site.get("api/status", host=host).status == 200


def test_a_name_can_be_allowed(server):
    site = server("--allow-host", "training.example.org")
    assert site.get("api/status", host="training.example.org").status == 200


def writes(site, **headers):
    """The status of every way of writing, with these headers."""
    run = "runs/none"
    return {
        site.post("api/runs", {"trainer": "none"}, **headers).status,
        site.post(f"api/{run}/cancel", **headers).status,
        site.post(f"{run}/cancel", form={}, **headers).status,
        site.post("start", form={"trainer": "none"}, **headers).status,
        site.ask("DELETE", f"api/{run}/predictions", **headers).status,
        site.post("api/backends/none/check", **headers).status,
    }


FOREIGN = [
    {"Origin": EVIL}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    {"Referer": EVIL + "/x"}, {"Origin": "http://127.0.0.1:1"}, {"Origin": "https://127.0.0.1"},
    {"Origin": "http://localhost"}, {"Sec_Fetch_Site": "none"},
]


@pytest.mark.parametrize("foreign", FOREIGN, ids=str)
def test_a_write_from_elsewhere_is_refused(server, foreign):
    site = server(config={"debug": True})
    assert writes(site, **foreign) == {403}
    assert writes(site, key=None, **foreign) == {403}
    site.sign_in()
    assert writes(site, key=None, **foreign) == {403}
    assert site.post("login", form={"key": "x"}, key=None, **foreign).status == 403
    assert site.study.runs() == []


def test_a_write_with_a_cookie_says_where_it_comes_from(site):
    site.sign_in()
    assert writes(site, key=None) == {403}
    assert writes(site, key=None, Referer=f"http://127.0.0.1:{site.port}/admin/training") == {403}
    for own in (site.own, {"Sec_Fetch_Site": "same-origin"}):
        assert writes(site, key=None, **own) == {400, 404}
    site.cookie = ""
    assert writes(site) == {400, 404}, "a program with the key says nothing of where it comes from"


def test_debug_lets_this_machine_in_and_no_proxy(server):
    site = server(config={"debug": True})
    assert site.get("api/status", key=None).status == 200
    assert site.get("", key=None).status == 200
    for header in ("X_Forwarded_For", "X_Real_IP", "Forwarded", "Via"):
        assert site.get("api/status", key=None, **{header: "127.0.0.1"}).status == 401


def test_behind_a_proxy(server):
    site = server("--behind-proxy", "--prefix", "/study1", "--allow-host", "lab.example.org", config={"debug": True})
    assert site.url.endswith("/study1/admin/training")
    seen = {"X_Forwarded_For": "127.0.0.1", "X_Forwarded_Proto": "https", "X_Forwarded_Host": "lab.example.org"}
    assert site.get("api/status", key=None, **seen).status == 401
    page = site.get("login", key=None, **seen)
    assert 'action="/study1/admin/training/login"' in page.text
    assert site.get("/study1/admin/training/api/status", **seen).status == 200, "a proxy that leaves the prefix on"
    assert site.post("api/runs", {"trainer": "none"}, Origin="https://lab.example.org", **seen).status == 400
    assert site.post("api/runs", {"trainer": "none"}, Origin="http://lab.example.org", **seen).status == 403
    answer = site.post("login", form={"key": "the key of the tests"}, key=None, **seen)
    assert answer.headers["Location"] == "/study1/admin/training"
    assert "Path=/study1" in answer.headers["Set-Cookie"]
    assert "Secure" in answer.headers["Set-Cookie"]
    assert site.get("api/status", **{**seen, "X_Forwarded_Host": "evil.example"}).status == 403


def test_every_answer_has_the_headers(site):
    for path in ("", "login", "api/status", "api/none", "static/page.css", "static/none", "/", "/none", "/metrics"):
        answer = site.get(path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "Access-Control-Allow-Origin" not in answer.headers
        if "static/page.css" not in path:
            assert answer.headers["Cache-Control"] == "no-store"


def test_pages_have_nothing_inline_and_nothing_from_elsewhere(site, study):
    run = site.start_run()
    study.ended(run)
    for path in ("", f"runs/{run}", "login"):
        text = site.get(path).text
        assert not re.search(r"<[^>]+ (style|on\w+)=", text)
        assert not re.search(r"<style|javascript:|<script(?! src=\"/admin/training/static/)", text)
        assert not re.search(r"(src|href|action|srcset|data)=\"(https?:)?//", text)


def test_agents_come_by_any_name_and_need_their_token(site):
    answer = site.post("/api/training/v1/claim", {}, host="some.alias", key=None)
    assert answer.status == 401
    assert answer.json == {"error": "unauthorized"}


@pytest.mark.parametrize("form", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_huge_body_is_refused_before_it_is_read(site, form):
    """Whoever sends it, with a size or without one."""
    sizes = ((b"Content-Length: 50000000", b"413"), (b"Transfer-Encoding: chunked", b"411"))
    for path in ("login", "start", "runs/x/push", "api/runs"):
        for size, status in sizes:
            with socket.create_connection(("127.0.0.1", site.port), 30) as sock:
                head = f"POST /admin/training/{path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n"
                head += f"Content-Type: {form}\r\n"
                sock.sendall(head.encode() + size + b"\r\n\r\n10000\r\n" + b"x" * 1000)
                assert sock.recv(4096).split()[1] == status, (path, size)


def test_a_stranger_s_body_is_never_waited_for(site):
    """More logins of any size that do not end than there are threads; one who has no key gets none to wait for him."""
    with contextlib.ExitStack() as begun:
        for n in range(48):
            sock = begun.enter_context(socket.create_connection(("127.0.0.1", site.port), 30))
            length = (100, 15_000, 200_000)[n % 3]
            sock.sendall(f"POST /admin/training/login HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nContent-Type: "
                         f"application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\nkey=".encode())
            if length == 200_000:
                assert sock.recv(4096).split()[1] == b"413"
        assert site.sign_in().status == 303
