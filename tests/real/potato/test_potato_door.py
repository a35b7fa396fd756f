"""Who may do what on the Training page inside Potato: its roles, its key, its look at origins; debug; the tunnel."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

PAGE = "/admin/training"
RUN = {"trainer": "test-quick", "schemas": ["sentiment"]}
ROLES = {"enabled": True, "user_role_assignments": {"chief": "admin", "ann": "annotator"}}


def over_unix(path, method, target, headers=None):
    """A request to the supervisor's private listener, as it comes out of a tunnel."""
    connection = http.client.HTTPConnection("127.0.0.1", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request(method, target, headers=headers or {})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_potatos_roles_key_and_origins_decide(study, potato_server):
    server = potato_server(study, config={"rbac": ROLES})
    stranger, admin = server.stranger(), server.admin()
    ann, chief = server.annotator("ann"), server.annotator("chief")
    own = {"Origin": f"http://127.0.0.1:{server.port}"}
    for nobody in (stranger, ann):
        page = nobody.get(PAGE)
        assert page.status == 403
        assert 'href="/admin"' in page.text
        refused = nobody.post(f"{PAGE}/api/runs", RUN, headers=own)
        assert (refused.status, refused.json["error"]) == (403, "Admin authentication required")
    assert stranger.get(PAGE, headers={"X-API-Key": "wrong"}).status == 403
    assert stranger.get(f"{PAGE}/login").headers["Location"] == "/admin"
    for somebody in (admin, chief):
        assert somebody.get(PAGE).status == 200
        for bad in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Referer": "http://evil.example/x"},
                    {"Origin": own["Origin"], "Sec-Fetch-Site": "cross-site"}):
            refused = somebody.post(f"{PAGE}/api/runs", RUN, headers=bad)
            assert (refused.status, refused.json["error"]) == (403, "Cross-origin request rejected")
    assert study.runs() == []
    for astray in (f"{PAGE}/api//runs", f"{PAGE}/api/nothing", "/api/training/v1//claim", "/api/training/v1/nothing"):
        answer = admin.get(astray)
        assert answer.status in (404, 405) and answer.json["error"], f"{astray} is ours to answer"
    assert "potato_training_supervisor_up" in admin.get("metrics").text
    assert stranger.get(f"{PAGE}/metrics").status == 403
    # a key that Potato's own form put into its session is good here as well
    browser = server.annotator("browser")
    assert browser.get("/admin", headers={"X-API-Key": "the key of the tests"}).status == 200
    assert browser.get(PAGE).status == 200
    started = chief.post(f"{PAGE}/start", form=RUN | {"schemas": "sentiment"}, headers=own)
    assert started.status == 303, started.text
    assert study.ended(study.runs()[0].run_id).state == "succeeded"
    assert "Content-Security-Policy" not in chief.get("/annotate").headers, "Potato's own pages stay as they are"


def test_debug_gives_this_machine_the_page_and_the_tunnel_nothing(study, potato_server):
    server = potato_server(study, config={"debug": True}, env={"POTATO_URL_PREFIX": "/study"})
    me = server.stranger()
    page = me.get(PAGE)
    assert page.status == 200
    assert 'href="/study/admin/training"' in page.text, "behind a proxy that takes the prefix off"
    assert 'href="/admin' not in page.text
    assert me.get(PAGE, headers={"X-Forwarded-For": "10.0.0.1"}).status == 403
    rebound = {"Host": f"evil.example:{server.port}", "Origin": f"http://evil.example:{server.port}"}
    assert me.get(PAGE, headers=rebound).status == 403
    assert me.post(f"{PAGE}/api/runs", RUN, headers=rebound).status == 403
    assert study.runs() == []
    answer = me.post(f"{PAGE}/api/runs", {**RUN, "trainer": "test-slow"})
    assert answer.status == 200, answer.text
    run = answer.json["run_id"]
    study.reaches(run, "running")
    about = json.loads((study.places.root / "supervisor.json").read_text())
    for path in (PAGE, f"{PAGE}/api/runs", "/admin", "/annotate", "/"):
        assert over_unix(about["socket"], "GET", path) == 404
    assert over_unix(about["socket"], "POST", f"{PAGE}/api/runs/{run}/cancel") == 404
    for path in ("claim", f"jobs/{run}/events", f"jobs/{run}/result"):
        assert over_unix(about["socket"], "POST", f"/api/training/v1/{path}") == 401
        assert me.post(f"/api/training/v1/{path}", {}).status == 401, "loopback and debug are no token"
    assert me.post(f"{PAGE}/api/runs/{run}/cancel").status == 200
    assert study.ended(run).state == "cancelled"
