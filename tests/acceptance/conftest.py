"""A project to train on for real: real commands, real processes, and proof that none of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from potato_training.runtime.listener import remove_socket
from potato_training.runtime.places import Places
from potato_training.runtime.store import Store

FIXTURES = Path(__file__).parents[1] / "fixtures"


class Study:
    """A project directory with its ledger, and the command run in it."""

    def __init__(self, root: Path, wait_until):
        self.root = root
        self.config = root / "config.yaml"
        self.places = Places(root)
        self.wait_until = wait_until
        self.env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(FIXTURES / "trainers"), str(FIXTURES / "faults")]),
            "NO_COLOR": "1",
        }
        self.started: list[subprocess.Popen] = []

    # --- the command ---------------------------------------------------------------------------

    def argv(self, *arguments):
        return [sys.executable, "-m", "potato_training.cli", *map(str, arguments)]

    def potato(self, *arguments, **options):
        """Runs the command to its end."""
        return subprocess.run(
            self.argv(*arguments), cwd=self.root, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=options.pop("timeout", 180), **options,
        )

    def start(self, *arguments):
        """Starts the command and leaves it running."""
        process = subprocess.Popen(
            self.argv(*arguments), cwd=self.root, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.started.append(process)
        return process

    def train(self, trainer, *more, **params):
        """Starts ``potato training run`` and waits until its run is in the ledger; (process, run id)."""
        before = {run.run_id for run in self.runs()}
        arguments = [f"--param={key}={value}" for key, value in params.items()]
        process = self.start("training", "run", "--trainer", trainer, *more, *arguments)

        def appeared():
            fresh = [run.run_id for run in self.runs() if run.run_id not in before]
            if not fresh and process.poll() is not None:
                pytest.fail(f"the command ended: {process.stdout.read()}")
            return fresh

        return process, self.wait_until(appeared, "the run")[0]

    def finish(self, process):
        """The output and exit code of a started command."""
        output, _ = process.communicate(timeout=180)
        return output, process.returncode

    # --- the ledger -----------------------------------------------------------------------------

    def store(self):
        return Store(self.places.store) if self.places.store.exists() else None

    def runs(self):
        store = self.store()
        return store.runs() if store else []

    def run(self, run_id):
        return self.store().get(run_id)

    def reaches(self, run_id, *states):
        """Waits until the run stands at one of the states; fails when it ended otherwise."""

        def there():
            run = self.run(run_id)
            if run.state in states:
                return run
            if run.over:
                pytest.fail(f"{run_id} is {run.state}: {run.reason}\n{self.log(run_id)}")
            return None

        return self.wait_until(there, f"{run_id} at {states}")

    def ended(self, run_id):
        """Waits until the run has ended, settled and let go of everything."""
        self.wait_until(lambda: self.run(run_id).over and self.run(run_id).settled, f"the end of {run_id}")
        self.wait_until(lambda: not self.store().releases(), "the release")
        return self.run(run_id)

    def log(self, run_id):
        path = self.places.run_dir(run_id) / "run.log"
        return path.read_text() if path.exists() else ""

    def events(self, run_id):
        path = self.places.run_dir(run_id) / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    # --- processes ------------------------------------------------------------------------------

    def processes(self, word=""):
        """pids of this project's supervisor, agents and workers whose command line holds ``word``."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                ours = "potato_training.runtime" in command or "potato_training.worker" in command
                if not ours or word not in command:
                    continue
                where = os.readlink(entry / "cwd")
                state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            except (OSError, IndexError):
                continue
            if (str(self.root) in command or where.startswith(str(self.root))) and state not in "ZX":
                found.append(int(entry.name))
        return found

    def supervisor(self):
        return self.wait_until(lambda: self.processes("runtime.supervisor"), "the supervisor")[0]

    def agent(self):
        return self.wait_until(lambda: self.processes("worker.agent"), "the agent")[0]

    def worker(self):
        return self.wait_until(lambda: self.processes("worker --spec"), "the worker")[0]

    def nothing_is_left(self):
        """No process of the project, no job directory, no open release."""
        self.wait_until(lambda: not self.processes(), "the end of all processes")
        assert list((self.places.root / "jobs").iterdir()) == []
        assert self.store().releases() == []

    def configure(self, **training):
        config = yaml.safe_load(self.config.read_text())
        config["model_training"].update(training)
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))

    def bounds(self, **seconds):
        self.env["POTATO_TRAINING_BOUNDS"] = json.dumps(seconds)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        about = self.places.root / "supervisor.json"
        socket = Path(json.loads(about.read_text())["socket"]) if about.is_file() else None
        give_up = time.monotonic() + 30
        while left := self.processes():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            assert time.monotonic() < give_up, f"processes do not die: {left}"
        if socket is not None:
            remove_socket(socket)  # of a supervisor that was killed just now


@pytest.fixture
def study(project, wait_until):
    study = Study(project("review-project"), wait_until)
    study.configure(grace_seconds=3)
    yield study
    study.close()


@pytest.fixture
def many_schemes(project, wait_until):
    study = Study(project("multi-project"), wait_until)
    yield study
    study.close()
