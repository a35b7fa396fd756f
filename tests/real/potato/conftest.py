"""The released Potato with this program beside it, as a server that really runs.

Potato comes from PyPI (see potato_python above), this program from the tree, and what it needs beyond Potato's
own packages from PyPI as well, once, into the user's cache directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"
KEY = "the key of the tests"
NEEDS = ("jsonschema>=4.18", "cheroot>=10", "rich>=13", "ijson>=3.2")


def _module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_acceptance = _module(TESTS / "acceptance" / "conftest.py", "potato_tests_study")
_ssh = _module(TESTS / "real" / "ssh" / "conftest.py", "potato_tests_ssh")
study, lab, remote = _acceptance.study, _ssh.lab, _ssh.remote
cluster = _module(TESTS / "acceptance" / "slurm" / "conftest.py", "potato_tests_fake_slurm").cluster
Login = _module(TESTS / "real" / "slurm" / "conftest.py", "potato_tests_slurm").Login


@pytest.fixture
def login(lab, project, wait_until, slurm_cluster):
    """A study whose backend is the real Slurm. The account is none that other tests' sshd has in this session."""
    account = lab.account("potatoslurm")
    account.clean()
    study = Login(project("review-project"), wait_until, lab, account, slurm_cluster)
    yield study
    study.close()
    account.clean()


# --- both packages in one environment -------------------------------------------------------------------


def _installed(potato_python, name, needs):
    """A folder for PYTHONPATH with packages that are not Potato's own."""
    home = potato_python.parents[1]
    target = home.with_name(f"{home.name}-{name}")
    with home.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "COMPLETE").exists():
            shutil.rmtree(target, ignore_errors=True)
            command = [potato_python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", target]
            done = subprocess.run([*command, *needs], capture_output=True, text=True, timeout=600)
            if done.returncode:
                pytest.skip(f"NO POTATO: {', '.join(needs)} could not be installed: {done.stderr.strip()[-500:]}")
            (target / "COMPLETE").write_text("\n".join(needs))
    return target


@pytest.fixture(scope="session")
def beside(potato_python):
    """What this program needs beside Potato."""
    return _installed(potato_python, "beside", NEEDS)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The tree as an installed package: links for its rooms, and the metadata by which Potato finds the plugin."""
    import tomllib

    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folder = tmp_path_factory.mktemp("site")
    package = folder / "potato_training"
    package.mkdir()
    for source in (ROOT / "potato_training").iterdir():
        if source.suffix == ".py":
            (package / source.name).symlink_to(source)
    for name, room in about["tool"]["setuptools"]["package-dir"].items():
        if name.count(".") == 1:
            (package / name.partition(".")[2]).symlink_to(ROOT / room)
    metadata = folder / "potato_training-0.0.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: potato-training\nVersion: 0.0.0\n")
    lines = []
    groups = {**about["project"]["entry-points"], "console_scripts": about["project"]["scripts"]}
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def both(potato_python, beside, site):
    """``(interpreter, {"PYTHONPATH": ...})``: an environment with Potato and this program."""
    fixtures = [TESTS / "fixtures" / "trainers", TESTS / "fixtures" / "faults"]
    return potato_python, {"PYTHONPATH": os.pathsep.join(map(str, [site, beside, *fixtures]))}


# --- a Potato server ---------------------------------------------------------------------------------------


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.data = response.status, response.headers, response.read()

    @property
    def text(self):
        return self.data.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.data)


class Visitor:
    """Someone with cookies of his own."""

    def __init__(self, port, name=""):
        self.port, self.name, self.cookies = port, name, {}

    def ask(self, method, path, body=None, *, form=None, headers=None):
        sent = {"Host": f"127.0.0.1:{self.port}", **(headers or {})}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        data = None
        if form is not None:
            data, sent["Content-Type"] = urlencode(form), "application/x-www-form-urlencoded"
        elif body is not None:
            data = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            connection.request(method, path, data, sent)
            answer = Answer(connection.getresponse())
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie") or ():
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.ask("POST", path, body, **options)

    # --- annotating -------------------------------------------------------------------------------

    def current(self):
        answer = self.get("/api/current_instance")
        assert answer.status == 200, answer.text
        return answer.json

    def label(self, item, schema, label):
        answer = self.post("/updateinstance", {
            "instance_id": item, "annotations": {f"{schema}:{label}": label}, "cleared_schemas": [],
            "span_annotations": [], "client_timestamp": None, "response_time_seconds": 1})
        assert answer.status == 200 and answer.json["status"] == "success", answer.text

    def move(self, action, **more):
        answer = self.post("/annotate", {"action": action, **more}, headers={"X-Potato-Navigation": "1"})
        assert answer.status == 200, answer.text

    def go_to(self, item):
        """The page of an item, wherever it stands among those that this annotator was given."""
        for n in range(self.current()["total_instances"]):
            self.move("go_to", go_to=n)
            if self.current()["instance_id"] == item:
                return self.get("/annotate").text
        raise AssertionError(f"{self.name} was not given {item}")


class Potato:
    """``potato start`` on a study, with us as the command. ``output`` is a file with everything that it printed."""

    def __init__(self, study, both, *arguments, env=None):
        self.study = study
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.output = study.root.with_name(f"{study.root.name}-{self.port}.out")
        # Its own place for what Potato makes of the schemes: the file's name is the task's, so that servers of one
        # installation whose tasks have one name write over each other's pages.
        self.pages = study.root.with_name(f"{study.root.name}-pages")
        python, more = both
        self.env = {**study.env, **more, "POTATO_GENERATED_TEMPLATES_DIR": str(self.pages), **(env or {})}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [python, "-m", *self.command(*arguments)],
                cwd=study.root, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )
        study.started.append(self.process)

    def command(self, *arguments):
        return ["potato_training.cli", "start", "config.yaml", "-p", str(self.port), "--host", "127.0.0.1", *arguments]

    @property
    def printed(self):
        return self.output.read_text(errors="replace")

    def up(self):
        give_up = time.monotonic() + 90
        while True:
            assert self.process.poll() is None, f"Potato ended: {self.printed[-3000:]}"
            with contextlib.suppress(OSError):
                if Visitor(self.port).get("/health").status < 500:
                    return self
            assert time.monotonic() < give_up, self.printed[-3000:]
            time.sleep(0.05)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(60)

    def admin(self):
        return Admin(self)

    def stranger(self):
        return Visitor(self.port)

    def annotator(self, name, *, new=True):
        visitor = Visitor(self.port, name)
        answer = visitor.post("/register" if new else "/auth", form={"email": name, "pass": "a password 1"})
        assert answer.status == 302, answer.text
        visitor.get("/annotate")
        return visitor


class Gunicorn(Potato):
    """Two workers of one Potato; who answers is chance. ``arguments`` are gunicorn's."""

    def command(self, *arguments):
        return ["gunicorn", "--bind", f"127.0.0.1:{self.port}", "--workers", "2", "--threads", "4", *arguments,
                'potato.flask_server:create_app("config.yaml")']


class Admin(Visitor):
    """Whoever holds the key. ``path`` is below the page when it begins with no slash."""

    def __init__(self, potato):
        super().__init__(potato.port)
        self.study = potato.study

    def ask(self, method, path="", body=None, **options):
        path = path if path.startswith("/") else f"/admin/training/{path}".rstrip("/")
        options["headers"] = {"X-API-Key": KEY, **(options.get("headers") or {})}
        return super().ask(method, path, body, **options)

    def get(self, path="", **options):
        return self.ask("GET", path, **options)

    def start_run(self, trainer="test-quick", schemas=("sentiment",), backend=None, **params):
        answer = self.post("api/runs", {"trainer": trainer, "schemas": list(schemas), "backend": backend,
                                        "params": params})
        assert answer.status == 200, answer.text
        return answer.json["run_id"]


def prepared(study, **more):
    """Puts the plugin and an admin key into the study's config."""
    config = yaml.safe_load(study.config.read_text())
    training = config["model_training"]
    training.setdefault("writeback", {})
    training["writeback"] = {"schemas": ["sentiment"], "include_unlabeled": True, **training["writeback"]}
    config.update({"plugins": ["training-backends"], "admin_api_key": KEY, **more})
    study.config.write_text(yaml.safe_dump(config, sort_keys=False))


@pytest.fixture
def potato_server(both):
    """``potato_server(study, *arguments, config={...}, env={...})``: a Potato that answers."""

    def start(study, *arguments, config=None, env=None):
        prepared(study, **(config or {}))
        return Potato(study, both, *arguments, env=env).up()

    return start


@pytest.fixture
def gunicorn(potato_python, both):
    """``gunicorn(study, *arguments)``: a Potato that answers, served by gunicorn."""
    python, env = both
    folder = _installed(potato_python, "gunicorn", ["gunicorn>=22"])
    path = os.pathsep.join([env["PYTHONPATH"], str(folder)])

    def start(study, *arguments):
        prepared(study, secret_key="0" * 32)  # the same in each worker, or one signs the other's users out
        return Gunicorn(study, (python, {**env, "PYTHONPATH": path}), *arguments).up()

    return start
