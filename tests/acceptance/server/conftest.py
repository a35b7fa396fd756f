"""Real ``potato training serve`` processes, and a client that speaks to them."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
from urllib.parse import urlencode

import pytest
import yaml

KEY = "the key of the tests"
PAGE = "/admin/training"


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.data = response.read()

    @property
    def text(self):
        return self.data.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.data)


class Site:
    """One server of a study. ``output`` is everything that it printed until it ended."""

    def __init__(self, study, *arguments, env=None):
        self.study = study
        study.env.update(env or {})
        self.process = study.start("training", "serve", "-p", "0", *arguments)
        first = self.process.stdout.readline()
        self.printed = first
        while "Training page:" not in first:
            assert first, f"the server did not start: {self.printed}"
            first = self.process.stdout.readline()
            self.printed += first
        self.url = re.search(r"http://\S+", first)[0]
        self.port = int(re.search(r":(\d+)/", self.url)[1])
        self.cookie = ""

    def ask(self, method, path, body=None, *, key=KEY, form=None, host=None, **headers):
        """``path`` is below the page when it begins with no slash. Header names are given with _ for -."""
        path = path if path.startswith("/") else f"{PAGE}/{path}" if path else PAGE
        sent = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        sent["Host"] = host or f"127.0.0.1:{self.port}"
        if key is not None:
            sent["X-API-Key"] = key
        if self.cookie:
            sent["Cookie"] = self.cookie
        data = None
        if form is not None:
            data, sent["Content-Type"] = urlencode(form, doseq=True), "application/x-www-form-urlencoded"
        elif body is not None:
            data = body if isinstance(body, (bytes, str)) else json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, data, sent)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path="", **options):
        return self.ask("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.ask("POST", path, body, **options)

    def sign_in(self, key=KEY):
        answer = self.post("login", form={"key": key}, key=None)
        if answer.status == 303:
            self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return answer

    @property
    def own(self):
        return {"Origin": f"http://127.0.0.1:{self.port}"}

    def start_run(self, trainer="test-quick", schemas=("sentiment",), **params):
        answer = self.post("api/runs", {"trainer": trainer, "schemas": list(schemas), "params": params})
        assert answer.status == 200, answer.text
        return answer.json["run_id"]

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.ended()

    def ended(self):
        try:
            rest, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            pytest.fail("the server does not stop")
        self.printed += rest
        return self.process.returncode


@pytest.fixture
def server(study):
    """``server(*arguments, config={...}, env={...})``: a started Site. The study is stopped after the test."""

    def start(*arguments, config=None, env=None, key=KEY):
        written = yaml.safe_load(study.config.read_text())
        written.pop("admin_api_key", None)
        if key is not None:
            written["admin_api_key"] = key
        written.update(config or {})
        fresh = study.config.with_suffix(".new")  # another server may be reading it
        fresh.write_text(yaml.safe_dump(written, sort_keys=False))
        fresh.replace(study.config)
        return Site(study, *arguments, env=env)

    return start
