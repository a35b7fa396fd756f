"""Pushing to the Hub: huggingface_hub itself against a stand-in that speaks the calls of the real one."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import http.server
import json
import os
import signal
import threading

import pytest

pytest.importorskip("huggingface_hub")
TOKEN = "hf_written-only-here"


class Hub:
    """Takes repositories, commits and LFS uploads, for one token."""

    def __init__(self):
        hub = self
        self.repos, self.files, self.lfs, self.calls = {}, {}, {}, []
        self.gate = threading.Event()
        self.gate.set()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                hub.calls.append(self.path)
                hub.gate.wait(60)
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
                with contextlib.suppress(ConnectionError):  # a killed upload hears no answer
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
    hub.gate.set()
    hub.server.shutdown()
    hub.server.server_close()


@pytest.fixture
def site(server, hub, tmp_path):
    return server(env=env_of(hub, tmp_path))


def env_of(hub, tmp_path):
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_TOKEN": "",
            "HF_HUB_DISABLE_XET": "1"}


def pushed(site, study, run):
    """How the push of a run stands once it has ended, by the API."""
    def ended():
        told = site.get(f"api/runs/{run}").json["push"]
        return told if told["state"] != "pushing" else None

    return study.wait_until(ended, "the end of the upload")


def test_a_model_is_pushed_with_its_card(site, study, hub):
    run = site.start_run()
    study.ended(run)
    assert site.get(f"api/runs/{run}").json["push"] is None
    answer = site.post(f"api/runs/{run}/push", {"repo_id": "me/reviews", "private": True, "token": TOKEN})
    assert answer.status == 202, answer.text
    assert (answer.json["repo_id"], answer.json["files"]) == ("me/reviews", 2)
    told = pushed(site, study, run)
    assert told["state"] == "done", told["error"]
    assert told["commit"] == f"{'c0ffee' * 6}abcd"
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
    assert "Pushed to" in page and "data-live" not in page
    assert site.post(f"runs/{run}/push", form={"repo_id": "me/again", "private": "no", "token": TOKEN}).status == 303
    assert pushed(site, study, run)["repo_id"] == "me/again"
    assert "me/again" in hub.repos


NOT_PUSHED = (
    ({}, 400, "repo_id"), ({"repo_id": "name"}, 400, "repo_id"), ({"repo_id": "a/b/c"}, 400, "repo_id"),
    ({"repo_id": "../x"}, 400, "repo_id"), ({"repo_id": 3}, 400, "repo_id"),
    ({"repo_id": "me/x", "private": "yes"}, 400, "private"), ({"repo_id": "me/x", "token": "a b"}, 400, "token"),
    ({"repo_id": "me/x", "tokn": "a"}, 400, "tokn"),
    *(({"repo_id": name}, 400, "repo_id") for name in (
        "me/a--b", "me/a..b", "me/x.", "me/x-", "me/x.git", "-me/x", "me/<script>", "me/x\n", "me/" + "x" * 97, "mé/x",
        "me /x", "me/x?y=1", "https://evil.example/me/x", "me\\x", "me/%2e%2e")),
)


def test_what_is_not_pushed(site, study, hub):
    run = site.start_run()
    study.ended(run)
    for asked, status, field in NOT_PUSHED:
        answer = site.post(f"api/runs/{run}/push", asked)
        assert (answer.status, answer.json.get("field")) == (status, field), (asked, answer.text)
    assert "push" not in study.run(run).facts and hub.calls == []


@pytest.mark.parametrize(("asked", "field"), [
    ({"repo_id": "me/x", "token": "wrong"}, "token"), ({"repo_id": "others/x", "token": TOKEN}, "repo_id")])
def test_what_the_hub_refuses_is_told(site, study, asked, field):
    run = site.start_run()
    study.ended(run)
    assert site.post(f"api/runs/{run}/push", asked).status == 202
    told = pushed(site, study, run)
    assert (told["state"], told["field"]) == ("failed", field)
    assert told["error"] in html.unescape(site.get(f"runs/{run}").text)


def test_an_upload_goes_on_without_its_page_and_its_server(site, server, study, hub):
    """Of two at once one starts; the server is killed and started again meanwhile."""
    run = site.start_run()
    study.ended(run)
    hub.gate.clear()
    asked = {"repo_id": "me/reviews", "token": TOKEN}
    assert site.post(f"api/runs/{run}/push", asked).status == 202
    study.wait_until(lambda: "/api/repos/create" in hub.calls, "the first call")
    again = site.post(f"api/runs/{run}/push", asked)
    assert again.status == 409 and "is being pushed already, to me/reviews" in again.json["error"]
    page = site.get(f"runs/{run}").text
    assert "Pushing to me/reviews" in page and "data-live" in page and 'name="repo_id"' not in page
    site.process.kill()
    site.ended()
    other = server(env={})
    assert other.get(f"api/runs/{run}").json["push"]["state"] == "pushing"
    hub.gate.set()
    assert pushed(other, study, run)["state"] == "done"
    assert "README.md" in hub.files


def test_an_upload_that_is_killed_is_no_upload(site, study, hub):
    run = site.start_run()
    study.ended(run)
    hub.gate.clear()
    assert site.post(f"api/runs/{run}/push", {"repo_id": "me/x", "token": TOKEN}).status == 202
    study.wait_until(lambda: "/api/repos/create" in hub.calls, "the first call")
    os.kill(study.run(run).facts["push"]["by"]["pid"], signal.SIGKILL)
    told = pushed(site, study, run)
    assert (told["state"], told["error"]) == ("failed", "the upload was interrupted")
    hub.gate.set()
    assert site.post(f"api/runs/{run}/push", {"repo_id": "me/x", "token": TOKEN}).status == 202
    assert pushed(site, study, run)["state"] == "done"


def test_a_hub_that_says_nothing_ends_the_upload(server, study, hub, tmp_path):
    study.bounds(copy_stall_s=2)
    site = server(env=env_of(hub, tmp_path))
    run = site.start_run()
    study.ended(run)
    hub.gate.clear()
    assert site.post(f"api/runs/{run}/push", {"repo_id": "me/x", "token": TOKEN}).status == 202
    told = pushed(site, study, run)
    assert (told["state"], told["error"]) == ("failed", "the Hub took nothing for 2 s")
    hub.gate.set()


def test_files_that_would_say_what_the_repository_is_stay_here(site, study, hub):
    run = site.start_run()
    study.ended(run)
    folder = study.places.run_dir(run) / "artifacts" / "sentiment"
    for name in ("README.md", ".gitattributes", ".git/config", "new\nline", "plain.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("evil")
    (folder / "link.txt").symlink_to("/etc/passwd")
    assert site.post(f"api/runs/{run}/push", {"repo_id": "me/x", "token": TOKEN}).status == 202
    assert pushed(site, study, run)["state"] == "done"
    assert set(hub.files) == {"README.md", "plain.txt", "potato.json", "shares.json"}
    assert b"evil" not in hub.files["README.md"]


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
    assert answer.status == 202
    told = pushed(site, study, run)
    assert told["state"] == "failed" and "could not be reached" in told["error"]
    assert TOKEN not in json.dumps(told) + study.log(run)
