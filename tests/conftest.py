"""Shared by all tests: hypothesis settings, waiting for a condition, and a command that runs ``potato``."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# No deadline and no "too slow": how fast a shared machine is today is no property of the code.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# In CI what failed is told as it was found: narrowing down an example that starts processes takes minutes each.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True,
                          phases=(Phase.explicit, Phase.generate))
settings.register_profile("light", settings.get_profile("ci"), max_examples=15)
settings.load_profile(
    "light" if os.environ.get("HYPOTHESIS_LIGHT") else "ci" if os.environ.get("CI") else "default"
)

# A suite started in the background (nohup, a shell's &) would hand ignored signals to all that it starts.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

ROOT = Path(__file__).parent
#: Far above what any awaited condition takes, so that only a real fault reaches it.
PATIENCE_S = 90.0


#: Files that take more than about half a minute, the longest first: they begin first, so that none is left at the end.
#: Those that compute all the time (the trainers', those with a browser) stand between those that mostly wait.
LONG = (
    "test_ssh_faults", "test_slurm_runs_real", "test_training_faults", "test_worker_llm", "test_slurm_faults",
    "test_worker_hf", "test_slurm_agent_real", "test_training_agent", "test_agent_nat", "test_worker_team",
    "test_slurm_agent_ends", "test_potato_server", "test_slurm_runs", "test_ssh_transfer", "test_agent_nginx",
    "test_ssh_ways", "test_ssh_check", "test_potato_gunicorn", "test_page_and_its_server", "test_server_api",
    "test_potato_browser", "test_training_agent_slurm", "test_wheel", "test_page_in_a_browser", "test_server_auto",
    "test_slurm_lag_real", "test_slurm_ends_real", "test_worker_sklearn", "test_ssh_trainers", "test_precommit",
    "test_slurm_agent_runs", "test_page_looks", "test_compiler_quoting", "test_worker_control", "test_training_run",
    "test_ssh_runs", "test_agent_slurm_real", "test_host_venv", "test_potato_start", "test_tutorial",
)


def pytest_collection_modifyitems(items):
    """What is long begins first. What is long and told nothing new by most of its cases waits for ``make test-all``:

    ``thorough(why)`` is left out as a whole; of a matrix with ``sample(*ids)`` those ids are kept.
    """
    place = {name: n for n, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONG)))
    if "POTATO_TEST_ALL" in os.environ:
        return
    for item in items:
        sample, thorough = item.get_closest_marker("sample"), item.get_closest_marker("thorough")
        if thorough:
            item.add_marker(pytest.mark.skip(reason=f"left to make test-all: {thorough.args[0]}"))
        elif sample and item.callspec.id not in sample.args:
            item.add_marker(pytest.mark.skip(reason="left to make test-all: another case of the same matrix ran"))


@pytest.fixture(scope="session")
def wait_until():
    """``wait_until(condition, what)``: calls until the answer is true, gives that answer, or fails the test."""

    def wait(condition, what="the condition", patience=PATIENCE_S):
        give_up = time.monotonic() + patience
        pause = 0.02
        while True:
            answer = condition()
            if answer:
                return answer
            if time.monotonic() > give_up:
                pytest.fail(f"{what} did not come about in {patience:g} s")
            time.sleep(pause)
            pause = min(pause * 1.1, 0.06)  # looking costs what is waited for its time

    return wait


@pytest.fixture(scope="session")
def potato():
    """``potato("validate", ..., cwd=..., env=...)``: the real command in a process of its own."""

    def run(*arguments, **options):
        options.setdefault("timeout", PATIENCE_S)
        return subprocess.run(
            [sys.executable, "-m", "potato_training.cli", *map(str, arguments)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, **options,
        )

    return run


@pytest.fixture
def project(tmp_path):
    """``project("review-project")``: a copy of a project from tests/fixtures/projects to work on."""

    def copy(name):
        target = tmp_path / name
        shutil.copytree(ROOT / "fixtures" / "projects" / name, target)
        return target

    return copy


SENTIMENT = {
    "annotation_type": "radio", "name": "sentiment", "description": "?", "labels": ["positive", "negative"]
}


@pytest.fixture(scope="session")
def write_project():
    """``write_project(folder, items, answers, schemes=..., training=..., data="data/items.jsonl", **more)``.

    ``answers`` is {annotator: {item: {scheme: label or [labels]}}}, written as Potato 2.12 does; ``items`` are
    records, texts (ids i1, i2, ...) or a number of them. The path of config.yaml, which is JSON.
    """

    def stored(scheme, labels):
        labels = [labels] if isinstance(labels, str) else labels
        select = scheme["annotation_type"] == "select"
        return [[{"schema": scheme["name"], "name": "select-one" if select else x}, x] for x in labels]

    def write(folder, items, answers, *, schemes=(SENTIMENT,), training=None, data="data/items.jsonl", **more):
        if isinstance(items, int):
            items = [f"text number {n}" for n in range(1, items + 1)]
        rows = [x if isinstance(x, dict) else {"id": f"i{n}", "text": x} for n, x in enumerate(items, 1)]
        path = Path(folder, data)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        by_name = {scheme["name"]: scheme for scheme in schemes}
        for who, said in answers.items():
            labels = {
                item: [pair for name, given in one.items() for pair in stored(by_name[name], given)]
                for item, one in said.items()
            }
            state = {"user_id": who, "instance_id_to_label_to_value": labels, "origin": {}}
            target = Path(folder, "annotation_output", who, "user_state.json")
            target.parent.mkdir(parents=True)
            target.write_text(json.dumps(state, indent=2), encoding="utf-8")
        config = {
            "annotation_task_name": "made by a test", "task_dir": ".", "data_files": [data],
            "item_properties": {"id_key": "id", "text_key": "text"},
            "output_annotation_dir": "annotation_output", "annotation_schemes": list(schemes),
            "model_training": {"enabled": True, **(training or {})}, **more,
        }
        target = Path(folder, "config.yaml")
        target.write_text(json.dumps(config, indent=1), encoding="utf-8")
        return target

    return write


@pytest.fixture
def new_project(tmp_path, write_project):
    """``new_project(items, answers, ...)``: as write_project, in a fresh folder; its checked Config."""
    from potato_training.schema.config import load_or_raise

    def make(items, answers=None, **options):
        return load_or_raise(write_project(tmp_path / "made", items, answers or {}, **options))

    return make


# --- compiled scripts -----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """``compiled("slurm", run_id="r1", time="1:00", ...)``: a CompiledRun of a backend called ``there``.

    The keys beyond the defaults are taken as they are, so that the compiler gets to see what validation refuses.
    """
    from potato_training.compiler import RunRequest, compile_run
    from potato_training.schema.config import Backend, load_or_raise

    path = tmp_path_factory.mktemp("compiled") / "config.yaml"
    there = {"ssh": {"type": "ssh", "host": "gpu"}, "slurm": {"type": "slurm", "host": "login", "remote_dir": "~/pt"},
             "agent": {"type": "agent"}}
    path.write_text(json.dumps({
        "task_dir": ".", "data_files": ["items.jsonl"], "item_properties": {"id_key": "id", "text_key": "text"},
        "annotation_schemes": [SENTIMENT], "model_training": {"enabled": True, "backends": there}}))
    config = load_or_raise(path)

    def make(kind, *, run_id="example", version="1.2.3", **keys):
        base = config.backends[kind]
        backend = Backend("there", kind, {**base.keys, **keys})
        asked = RunRequest(run_id, "there", "sklearn-text", ("sentiment",))
        return compile_run(replace(config, backends={"there": backend}), asked, version=version)

    return make


@pytest.fixture(scope="session")
def shellcheck(tmp_path_factory):
    """``shellcheck(text)``: what shellcheck says of a script, with nothing excluded; "" when it is silent."""
    program = Path(sys.executable).with_name("shellcheck")
    env = {**os.environ, "LC_ALL": "C.UTF-8"}

    def check(*texts):
        files = []
        for n, text in enumerate(texts):
            files.append(tmp_path_factory.mktemp("checked") / f"{n}.sh")
            files[-1].write_text(text, encoding="utf-8")
        done = subprocess.run([program, "--norc", "-f", "gcc", *files], capture_output=True, text=True, env=env)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    return check


class Answer:
    """What a script said between its two marks: ``values["error"]`` is a list; ``end`` is its code or None."""

    def __init__(self, mark, done):
        self.returncode, self.stderr = done.returncode, done.stderr.decode("utf-8", "replace")
        _, found, rest = done.stdout.partition(b"\n" + mark + b" begin\n")
        assert found, (done.stdout, done.stderr)
        said, ended, self.rest = rest.partition(mark + b" end ")
        self.end = int(self.rest.split(b"\n")[0]) if ended else None
        self.said = said
        self.values = {}
        for line in said.decode("utf-8", "replace").split("\n"):
            key, _, value = line.partition("=")
            self.values.setdefault(key, []).append(value)


@pytest.fixture(scope="session")
def over_ssh():
    """``over_ssh(script, *lines, shell="/bin/sh", tail=b"", env=...)``: a script run as ssh runs it on a host.

    The command that the login shell gets is one fixed line; the script is the first bytes of stdin, then a mark,
    then ``lines``, then ``tail``. ``hold``: stdin has no end before the script's. Gives an Answer.
    """

    def run(script, *lines, shell="/bin/sh", login=("/bin/sh", "-c"), tail=b"", hold=False, **options):
        body = script.encode("utf-8")
        mark = b"mark-" + os.urandom(8).hex().encode()
        said = b"".join(line.encode("utf-8") + b"\n" for line in lines)
        command = f"exec {shell} -c 'eval \"$(dd bs=1 count={len(body)} 2>/dev/null)\"'"
        told = body + mark + b"\n" + said + tail
        if not hold:
            done = subprocess.run([*login, command], input=told, capture_output=True, timeout=PATIENCE_S, **options)
            return Answer(mark, done)
        stdin, ours = os.pipe()
        with os.fdopen(stdin, "rb") as ears, os.fdopen(ours, "wb", buffering=0) as mouth:

            def tell():
                with contextlib.suppress(OSError):  # nobody wanted to hear the rest
                    mouth.write(told)

            speaker = threading.Thread(target=tell)  # a pipe without a reader yet holds 64 KiB and no more
            speaker.start()
            done = subprocess.run([*login, command], stdin=ears, capture_output=True, timeout=PATIENCE_S, **options)
            ears.close()
            speaker.join()
        return Answer(mark, done)

    return run


# --- a Slurm that does what the test says ----------------------------------------------------------


class FakeSlurm:
    """See tests/fixtures/fake_slurm/README.md. ``env`` has its commands first on PATH."""

    def __init__(self, root):
        self.root = root
        self.programs = root / "bin"
        self.programs.mkdir(parents=True)
        for program in (ROOT / "fixtures" / "fake_slurm" / "bin").iterdir():
            # the same program under this very interpreter, and without looking for packages, which it has no need
            # of: a `python3` on PATH may be a slow shim
            code = (f"#!{sys.executable} -IS\npath = {str(program)!r}\n"
                    "exec(compile(open(path).read(), path, 'exec'), {'__file__': path, '__name__': '__main__'})\n")
            target = self.programs / program.name
            target.write_text(code)
            target.chmod(0o755)
        self.env = {**os.environ, "FAKE_SLURM_DIR": str(root), "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def scenario(self, **wishes):
        target = self.root / "scenario.json"
        target.with_suffix(".tmp").write_text(json.dumps(wishes))
        target.with_suffix(".tmp").replace(target)

    def run(self, *argv, **options):
        options = {"env": self.env, "text": True, "capture_output": True, "timeout": PATIENCE_S, **options}
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([str(a) for a in argv], **options)

    def _control(self, *argv):
        done = self.run("fake_slurm", *argv)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def tick(self, seconds=1):
        """Lets so many seconds of the clock pass."""
        self._control("tick", seconds)

    def become(self, job_id, state, reason="None"):
        self._control("become", job_id, state, reason)

    def state(self):
        return json.loads(self._control("show"))

    def job(self, job_id):
        """The job, or None when nobody knows it any more."""
        return self.state()["jobs"].get(str(job_id))

    def calls(self, program=None):
        return [c for c in map(json.loads, self._control("calls").splitlines()) if program in (None, c["program"])]


@pytest.fixture
def fake_slurm(tmp_path):
    slurm = FakeSlurm(tmp_path / "fake-slurm")
    yield slurm
    slurm.run("fake_slurm", "sweep")
