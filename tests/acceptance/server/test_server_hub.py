"""Pushing to the Hub: huggingface_hub itself against a stand-in that speaks the calls of the real one."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading

import pytest

pytest.importorskip("huggingface_hub")
TOKEN = "hf_written-only-here"


class Hub:
    """Takes repositories, commits and LFS uploads, for one token."""

    def __init__(self):
        hub = self
        self.repos, self.files, self.lfs, self.calls = {}, {}, {}, []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                hub.calls.append(self.path)
                if self.path == "/api/validate-yaml":
                    return self.give({"errors": [], "warnings": []})
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    return self.give({"error": "Invalid credentials"}, 401)
                if self.path == "/api/repos/create":
                    asked = json.loads(body)
                    name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
                    if name.startswith("others/"):
                        return self.give({"error": "no rights"}, 403)
                    hub.repos[name] = asked
                    return self.give({"url": f"{hub.url}/{name}", "id": "1", "name": name})
                if "/preupload/" in self.path:
                    files = [{"path": f["path"], "shouldIgnore": False, "oid": None,
                              "uploadMode": "lfs" if f["path"].endswith("shares.json") else "regular"}
                             for f in json.loads(body)["files"]]
                    return self.give({"files": files})
                if self.path.endswith("/info/lfs/objects/batch"):
                    objects = [{"oid": o["oid"], "size": o["size"],
                                "actions": {"upload": {"href": f"{hub.url}/store/{o['oid']}", "header": {}}}}
                               for o in json.loads(body)["objects"]]
                    return self.give({"transfer": "basic", "objects": objects})
                if "/commit/" in self.path:
                    for line in body.splitlines():
                        item = json.loads(line)
                        value = item["value"]
                        if item["key"] == "file":
                            hub.files[value["path"]] = base64.b64decode(value["content"])
                        elif item["key"] == "lfsFile":
                            hub.files[value["path"]] = hub.lfs[value["oid"]]
                    repo, oid = "/".join(self.path.split("/")[3:5]), "c0ffee" * 6 + "abcd"
                    return self.give({"success": True, "commitOid": oid, "commitUrl": f"{hub.url}/{repo}/commit/{oid}"})
                return self.give({"error": "not here"}, 404)

            def do_PUT(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert hashlib.sha256(body).hexdigest() == self.path.rpartition("/")[2]
                hub.lfs[self.path.rpartition("/")[2]] = body
                self.give({})

            def do_GET(self):
                hub.calls.append(self.path)
                self.give({"error": "not here"}, 404)

            do_HEAD = do_GET

            def give(self, body, status=200):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


@pytest.fixture
def site(server, hub, tmp_path):
    return server(env={"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1",
                       "HF_TOKEN": "", "HF_HUB_DISABLE_XET": "1"})


def test_a_model_is_pushed_with_its_card(site, study, hub):
    run = site.start_run()
    study.ended(run)
    answer = site.post(f"api/runs/{run}/push", {"repo_id": "me/reviews", "private": True, "token": TOKEN})
    assert answer.status == 200, answer.text
    assert (answer.json["repo_id"], answer.json["files"]) == ("me/reviews", 2)
    assert hub.repos["me/reviews"].get("private") is True or hub.repos["me/reviews"].get("visibility") == "private"
    saved = study.places.run_dir(run) / "artifacts" / "sentiment"
    assert hub.files["shares.json"] == (saved / "shares.json").read_bytes()
    assert hub.files["potato.json"] == (saved / "potato.json").read_bytes()
    card = hub.files["README.md"].decode()
    record = study.run(run)
    for part in (record.facts["bundle"]["digest"], run, "positive, negative", "macro-F1", "library_name:",
                 'snapshot_download("me/reviews")'):
        assert part in card
    for text in (json.dumps(study.run(run).facts), study.log(run), site.get(f"api/runs/{run}").text):
        assert TOKEN not in text
    assert f"pushed 2 model files to me/reviews, commit {'c0ffee' * 6}abcd" in study.log(run)
    page = site.get(f"runs/{run}").text
    assert "Pushed to" in page
    assert site.post(f"runs/{run}/push", form={"repo_id": "me/again", "private": "no", "token": TOKEN}).status == 303
    assert "me/again" in hub.repos


@pytest.mark.parametrize(("asked", "status", "field"), [
    ({}, 400, "repo_id"), ({"repo_id": "name"}, 400, "repo_id"), ({"repo_id": "a/b/c"}, 400, "repo_id"),
    ({"repo_id": "../x"}, 400, "repo_id"), ({"repo_id": 3}, 400, "repo_id"),
    ({"repo_id": "me/x", "private": "yes"}, 400, "private"), ({"repo_id": "me/x", "token": "a b"}, 400, "token"),
    ({"repo_id": "me/x", "tokn": "a"}, 400, "tokn"), ({"repo_id": "me/x", "token": "wrong"}, 400, "token"),
    ({"repo_id": "others/x", "token": TOKEN}, 400, "repo_id"),
])
def test_what_is_not_pushed(site, study, asked, status, field):
    run = site.start_run()
    study.ended(run)
    answer = site.post(f"api/runs/{run}/push", asked)
    assert (answer.status, answer.json.get("field")) == (status, field), answer.text
    assert "pushed" not in study.run(run).facts


def test_runs_without_model_files(site, study, hub):
    assert site.post("api/runs/none/push", {"repo_id": "me/x"}).status == 404
    run = site.start_run("test-crash")
    study.ended(run)
    assert site.post(f"api/runs/{run}/push", {"repo_id": "me/x", "token": TOKEN}).status == 409
    away = site.start_run()
    study.ended(away)
    import shutil

    shutil.rmtree(study.places.run_dir(away) / "artifacts")
    study.store().note(away, report={"artifact_uri": "gpu.example.org:/jobs/x"})
    answer = site.post(f"api/runs/{away}/push", {"repo_id": "me/x", "token": TOKEN})
    assert (answer.status, "gpu.example.org:/jobs/x" in answer.json["error"]) == (409, True)
    assert "Only model files on this server" in site.get(f"runs/{away}").text
    assert hub.repos == {}


def test_a_hub_that_is_not_there(site, study, hub):
    run = site.start_run()
    study.ended(run)
    hub.server.shutdown()
    hub.server.server_close()
    answer = site.post(f"api/runs/{run}/push", {"repo_id": "me/x", "token": TOKEN})
    assert answer.status == 502
    assert TOKEN not in answer.text
