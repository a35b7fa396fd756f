"""The whole way in a browser, once for every kind of place where a run can execute: two annotators annotate, a run is
started from the page, a third annotator sees what the model proposes, the server restarts, and he sees it again."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest
from potato_training.runtime.launchers import KINDS

pytestmark = [pytest.mark.real, pytest.mark.slow]

KEY = "the key of the tests"


# --- places: (the study, its backend, what to do once the server is up) ------------------------------------


@pytest.fixture
def on_local(request):
    return request.getfixturevalue("study"), "local", lambda server: None


@pytest.fixture
def on_agent(request, tmp_path):
    study = request.getfixturevalue("study")
    study.configure(backends={"station": {"type": "agent"}})
    printed = study.potato("training", "register", "station", check=True).stdout
    token = re.search(r"^  ([A-Za-z0-9_-]{40,})$", printed, re.MULTILINE)[1]
    python = tmp_path / "python"  # an agent passes no PYTHONPATH of its own on
    python.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{shlex.quote(study.env["PYTHONPATH"])} '
                      f'exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)

    def connect(server):
        argv = study.argv("training", "agent", "--server", f"http://127.0.0.1:{server.port}", "--backend", "station",
                          "--workdir", tmp_path / "agent", "--python", python, "--once")
        study.started.append(subprocess.Popen(
            argv, env={**study.env, "POTATO_TRAINING_TOKEN": token}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    return study, "station", connect


@pytest.fixture
def on_ssh(request):
    # an account that no other test's sshd has in this session
    return request.getfixturevalue("remote")("potatossh"), "gpu-server", lambda server: None


@pytest.fixture
def on_slurm_stand_in(request):
    return request.getfixturevalue("cluster"), "cluster", lambda server: None


@pytest.fixture
def on_slurm(request):
    return request.getfixturevalue("login"), "gpu-server", lambda server: None


PLACES = [
    pytest.param("on_local", id="local"),
    pytest.param("on_agent", id="agent"),
    pytest.param("on_ssh", id="ssh"),
    *([pytest.param("on_slurm_stand_in", id="slurm-stand-in"),
       pytest.param("on_slurm", id="slurm")] if "slurm" in KINDS else []),
]


# --- people ---------------------------------------------------------------------------------------------------


class Person:
    """Somebody's browser window on Potato."""

    def __init__(self, browser, server, name=""):
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, locale="en-GB")
        self.address = f"http://127.0.0.1:{server.port}"
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.complaints = []
        self.name = name

    def comes(self, how="register"):
        """By the forms that stand on Potato's first page."""
        form = {"email": self.name, "pass": "a password 1"}
        answer = self.context.request.post(f"{self.address}/{how}", form=form)
        assert answer.ok, answer.text()
        self.page.goto(f"{self.address}/annotate")
        self.item()
        return self

    def item(self):
        return self.page.locator("#instance_id").input_value()

    def answers(self, label):
        """Chooses, and goes on to the next item, which is another page."""
        item = self.item()
        with self.page.expect_response(lambda r: r.url.endswith("/updateinstance") and r.ok):
            self.page.locator(f"#sentiment_{label}_radio").check()
        self.goes_on(item)

    def goes_on(self, item):
        self.page.locator("#next-btn").click()
        self.page.wait_for_function("item => document.getElementById('instance_id')?.value !== item", arg=item)

    def goes_to(self, number):
        item = self.item()
        self.page.locator("#go_to").fill(str(number))
        self.page.locator("#go-to-btn").click()
        self.page.wait_for_function("item => document.getElementById('instance_id')?.value !== item", arg=item)

    def proposed(self):
        """The label that is marked as the model's, once it is there."""
        mark = self.page.locator("label:has(.potato-training-mark)")
        mark.wait_for()
        chosen = self.page.locator("input[type=radio][schema=sentiment]:checked")
        assert chosen.get_attribute("id") == mark.get_attribute("for"), "what is chosen is what is marked"
        return chosen.get_attribute("label_name")

    def opens_training(self):
        """Signs in where Potato asks for its key, and follows no link: there is none."""
        page = self.page
        page.goto(f"{self.address}/admin/training")
        page.get_by_role("link", name="Sign in").click()
        page.locator("#adminLoginForm input").first.fill(KEY)
        with page.expect_navigation():  # its script asks for the key to be kept, and loads its admin page then
            page.locator("#adminLoginSubmit").click()
        for kind in ("console", "pageerror"):
            page.on(kind, lambda said: self.complaints.append(str(getattr(said, "text", said))))
        page.goto(f"{self.address}/admin/training")
        return page


def free_numbers(study):
    """Places (from 1) in the order of the data file of the items that nobody has labelled."""
    items = [row["id"] for row in json.loads((study.root / "data" / "reviews.json").read_text())]
    labelled = set()
    for state in (study.root / "annotation_output").glob("*/user_state.json"):
        labelled |= json.loads(state.read_text())["instance_id_to_label_to_value"].keys()
    return [n for n, item in enumerate(items, 1) if item not in labelled]


@pytest.mark.sample("local", "slurm")
@pytest.mark.parametrize("place", PLACES)
def test_annotate_train_and_see_what_the_model_proposes(place, request, browser, potato_server, wait_until):
    study, backend, when_up = request.getfixturevalue(place)
    study.configure(writeback={"min_confidence": 0})
    server = potato_server(study)
    when_up(server)
    for name, label in (("fay", "positive"), ("gus", "negative")):
        if place == "on_local":
            person = Person(browser, server, name).comes()
            for _ in range(2):
                person.answers(label)
            person.context.close()
        else:  # what the browser sends; where the run executes makes no difference to it
            visitor = server.annotator(name)
            for item in ("r001", "r002"):
                visitor.label(item, "sentiment", label)
    said = json.loads((study.root / "annotation_output" / "fay" / "user_state.json").read_text())
    assert len(said["instance_id_to_label_to_value"]) == 2

    admin = Person(browser, server)
    page = admin.opens_training()
    page.get_by_label("Runs on").select_option(backend)
    page.get_by_label("Trainer").select_option("test-quick")
    page.get_by_role("button", name="Start run").click()
    page.get_by_text("The run is in the queue.").wait_for()
    run = wait_until(study.runs, "the run")[0].run_id
    assert study.ended(run).state == "succeeded", study.log(run)
    page.locator("#region-runs").get_by_text("succeeded").wait_for()
    assert study.run(run).backend == backend
    assert admin.complaints == []
    admin.context.close()

    number = free_numbers(study)[0]
    third = Person(browser, server, "third").comes()
    third.goes_to(number)
    label = third.proposed()
    third.context.close()

    server.stop()
    server = potato_server(study)
    third = Person(browser, server, "third").comes("auth")
    if third.item() != f"r{number:03}":
        third.goes_to(number)
    assert third.proposed() == label
    item = third.item()
    third.goes_on(item)  # which saves what was proposed
    stored = study.root / "annotation_output" / "third" / "user_state.json"
    kept = wait_until(lambda: stored.exists() and json.loads(stored.read_text()), "the answer")
    assert kept["instance_id_to_label_to_value"][item] == [[{"schema": "sentiment", "name": label}, label]]
    assert kept["instance_id_to_behavioral_data"][item]["pre_annotation_seeds"]["sentiment"]["label"] == label
    third.context.close()
