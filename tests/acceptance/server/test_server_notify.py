"""Word to a webhook when a run ends: tried again, recorded, and nothing secret shown."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading

import pytest


class Hook:
    """Takes POSTs, answers with the statuses it was given (the last one from then on), and keeps the bodies."""

    def __init__(self, *statuses):
        hook = self
        self.statuses, self.bodies, self.paths = list(statuses), [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                hook.paths.append(self.path)
                hook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                status = hook.statuses.pop(0) if len(hook.statuses) > 1 else hook.statuses[0]
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/secret-path?token=abc"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook():
    made = []

    def make(*statuses):
        made.append(Hook(*statuses))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


@pytest.fixture
def told(study):
    """``told(hook, trainer)``: a run to its end with that webhook; its record once the notification is done with."""
    study.bounds(notify_first_s=0.05, notify_most_s=0.2)

    def run(hook, trainer="test-quick", **params):
        study.configure(notify={"webhook": hook.url})
        process, run_id = study.train(trainer, **params)
        study.finish(process)
        study.wait_until(lambda: study.run(run_id).facts["notify"]["state"] != "owed", "the delivery")
        study.nothing_is_left()
        assert list((study.places.root / "deliveries").iterdir()) == []
        return study.run(run_id)

    return run


def test_a_run_that_ended_is_told_once(study, told, hook):
    there = hook(200)
    run = told(there)
    assert run.facts["notify"]["state"] == "delivered"
    (body,) = there.bodies
    assert (body["event"], body["run_id"], body["status"]) == ("run.ended", run.run_id, "succeeded")
    assert "macro-F1" in body["text"]
    assert body["held_out"]["sentiment"]["macro_f1"] is not None
    assert "notification delivered to 127.0.0.1 at try 1" in study.log(run.run_id)


def test_a_failure_is_told_as_well(told, hook):
    there = hook(204)
    run = told(there, "test-crash")
    assert there.bodies[0]["status"] == "failed"
    assert run.reason in there.bodies[0]["text"]


def test_it_is_tried_again_and_then_given_up(study, told, hook):
    slow = hook(500, 429, 503, 200)
    run = told(slow)
    assert (run.facts["notify"]["state"], len(slow.bodies)) == ("delivered", 4)
    assert len({body["id"] for body in slow.bodies}) == 1

    down = hook(500)
    run = told(down)
    assert (run.facts["notify"]["state"], len(down.bodies)) == ("failed", 6)
    assert "not delivered to 127.0.0.1 after 6 tries: it answered 500" in study.log(run.run_id)
    assert run.state == "succeeded"


@pytest.mark.parametrize("status", [400, 403, 404, 302])
def test_what_will_never_be_taken_is_not_tried_again(told, hook, status):
    there = hook(status)
    run = told(there)
    assert run.facts["notify"]["state"] == "failed"
    assert len(there.bodies) == 1
    assert "/elsewhere" not in there.paths


def test_nobody_listens(study, told, hook):
    there = hook(200)
    there.server.server_close()
    run = told(there)
    assert run.facts["notify"]["state"] == "failed"
    for secret in ("secret-path", "abc"):
        assert secret not in json.dumps(run.facts)
        assert secret not in study.log(run.run_id)
    assert "secret-path" not in study.places.supervisor_log.read_text()


def test_a_supervisor_that_was_killed_forgets_no_message(study, hook):
    study.bounds(notify_first_s=600, notify_most_s=600)
    there = hook(500)
    study.configure(notify={"webhook": there.url})
    process, run_id = study.train("test-quick")
    study.finish(process)
    study.wait_until(lambda: "it answered 500" in study.run(run_id).facts["notify"]["words"], "the first try")
    os.kill(study.supervisor(), signal.SIGKILL)
    study.wait_until(lambda: not study.processes(), "its end")
    there.statuses = [200]
    study.bounds(notify_first_s=0.05, notify_most_s=0.2)
    assert study.potato("training", "supervise").returncode == 0
    study.wait_until(lambda: study.run(run_id).facts["notify"]["state"] == "delivered", "the delivery")
    study.nothing_is_left()


def test_a_run_cancelled_in_the_queue_is_told(study, server, hook):
    there = hook(200)
    study.bounds(notify_first_s=0.05)
    study.configure(notify={"webhook": there.url})
    site = server()
    first = site.start_run("test-slow", steps=600)
    second = site.start_run()
    site.post(f"api/runs/{second}/cancel")
    study.wait_until(lambda: there.bodies, "the message")
    assert (there.bodies[0]["run_id"], there.bodies[0]["status"]) == (second, "cancelled")
    site.post(f"api/runs/{first}/cancel")
    study.wait_until(lambda: len(there.bodies) == 2, "the other")
    page = site.get(f"runs/{first}").text
    assert "delivered to 127.0.0.1" in study.wait_until(
        lambda: (text := site.get(f"runs/{first}").text) and "delivered to" in text and text, "the record") or page
