"""examples/trainer-plugin, installed as its README says; and what the conformance test finds in bad trainers."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from potato_training.worker.failures import Cancelled
from potato_training.worker.trainers import conformance
from potato_training.worker.trainers.base import Task, Trainer, TrainerInfo

EXAMPLE = Path(__file__).parents[3] / "examples" / "trainer-plugin"


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The example, built and installed from a copy into a directory of its own."""
    pytest.importorskip("setuptools")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "nearest_words.py"):
        (source / name).write_bytes((EXAMPLE / name).read_bytes())
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                           "--no-build-isolation", "--disable-pip-version-check", "--target", str(target), str(source)],
                          capture_output=True, text=True, check=False, cwd=target)
    assert done.returncode == 0, done.stderr
    return target


def test_the_example_conforms(installed, conforms):
    conforms("nearest-words", path=installed, neighbours=3)


def test_the_example_trains_in_a_run(installed, make_job):
    job = make_job("nearest-words", schemas=("sentiment", "stars", "topics"), params={"neighbours": 7})
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    assert job.run(env={"PYTHONPATH": path}) == 0, job.stderr
    assert job.last["metrics"]["sentiment"]["test"]["accuracy"] > 0.9
    assert job.last["metrics"]["stars"]["test"]["accuracy"] > 0.9


class Good(Trainer):
    """The shares of the labels in the train items, whatever the text."""

    info = TrainerInfo(name="good", title="shares", description="for tests", kinds=("nominal",), packages=(),
                       install_hint="")

    def fit(self, train, val):
        for _ in train:
            self.run.check()
        count = [sum(e.target == k for e in train) for k in range(len(self.task.labels))]
        self.shares = [c / len(train) for c in count]

    def predict(self, texts):
        self.run.check()
        return [self.shares for _ in texts]

    def save(self, directory):
        Path(directory, "shares.txt").write_text("\n".join(map(str, self.shares)))

    @classmethod
    def load(cls, directory, run=None):
        trainer = cls(Task("s", "nominal", conformance.LABELS, {}), run)
        trainer.shares = [float(line) for line in Path(directory, "shares.txt").read_text().splitlines()]
        return trainer


class Deaf(Good):
    def fit(self, train, val):
        try:
            super().fit(train, val)
        except Cancelled:
            self.shares = [0.25] * 4


class Random(Good):
    def fit(self, train, val):
        super().fit(train, val)
        a = random.random()
        self.shares = [a, 1 - a, 0.0, 0.0]


class Short(Good):
    def predict(self, texts):
        return [self.shares for _ in texts][1:]


class OnlySeen(Good):
    def predict(self, texts):
        return [[p for p in self.shares if p] for _ in texts]


class Unsure(Good):
    def predict(self, texts):
        return [[p / 2 for p in self.shares] for _ in texts]


class Company(Good):
    """Looks at the whole batch."""

    def predict(self, texts):
        share = min(1.0, len(texts) / 50)
        return [[share, 1 - share, 0.0, 0.0] for _ in texts]


class Pickled(Good):
    def save(self, directory):
        super().save(directory)
        Path(directory, "model.pkl").write_bytes(b"")


class Sorted(Good):
    @classmethod
    def load(cls, directory, run=None):
        trainer = super().load(directory, run)
        trainer.task = Task("s", "nominal", tuple(sorted(conformance.LABELS)), {})
        return trainer


class Falls(Good):
    def predict(self, texts):
        return [self.shares for text in texts if text.split()[0]]


class Exits(Good):
    def fit(self, train, val):
        sys.exit(0)


class Silent(Good):
    info = TrainerInfo(name="silent", title="", description="", kinds=("nominal", "picture"), packages=("x",),
                       install_hint="", params_schema={"type": "object", "properties": {"a": {}}})


@pytest.mark.parametrize(("cls", "says"), [
    (Deaf, "swallows Cancelled"), (Random, "the same seed makes another model"), (Short, "rows of scores for"),
    (OnlySeen, "not one score for each label"), (Unsure, "do not sum to 1"),
    (Company, "depend on what is predicted along with it"), (Pickled, "may be a pickle: "),
    (Sorted, "other labels, or another order"), (Falls, "IndexError"), (Silent, "info.kinds: "),
    (Exits, "it ends the process (SystemExit 0)"),
])
def test_what_is_wrong_with_a_trainer_is_found_and_said(cls, says):
    found = conformance.check(cls)
    assert any(says in line for line in found), found


def test_a_finding_is_said_once_with_how_often():
    found = [line for line in conformance.check(Unsure) if "do not sum to 1" in line]
    assert len(found) == 1 and re.search(r"[(]\d\d+ times[)]$", found[0]), found


LEAVING = """
import os, sys
from potato_training.worker.trainers import conformance
from potato_training.worker.trainers.base import Trainer, TrainerInfo
class Leaves(Trainer):
    info = TrainerInfo(name="leaves", title="t", description="d", kinds=("nominal",), packages=(), install_hint="")
    def fit(self, train, val):
        %s
conformance.load = lambda name: Leaves
if __name__ == "__main__":
    sys.exit(conformance.main(["leaves"]))
"""


@pytest.mark.parametrize(("how", "says"), [
    ("sys.exit(0)", "SystemExit 0"), ("os._exit(0)", "exit code 0"), ("os.kill(os.getpid(), 9)", "signal 9"),
])
def test_a_trainer_that_ends_the_process_does_not_conform(tmp_path, how, says):
    (tmp_path / "leaves.py").write_text(LEAVING % how)
    done = subprocess.run([sys.executable, "leaves.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert f"it ends the process ({says})" in done.stdout
    assert done.stdout.endswith("leaves does not conform\n")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tmp")] == []


@pytest.mark.parametrize("arguments", [
    ("conformance", "no-such"), ("conformance", "decision-calibrate"), ("__main__",)])
def test_a_reader_that_goes_away_is_no_fault(arguments):
    module = "potato_training.worker.trainers." + arguments[0]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", module, *arguments[1:]], stdout=write, stderr=subprocess.PIPE,
                          text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0 if arguments == ("__main__",) else 1, "")


def test_a_good_one_has_no_findings():
    assert conformance.check(Good) == []


def test_a_name_that_nobody_brings_and_a_parameter_that_it_lacks(capsys):
    assert conformance.main(["no-such"]) == 1
    assert "unknown trainer 'no-such'" in capsys.readouterr().out
    assert conformance.main(["decision-calibrate", "--param", "warmth=3"]) == 1
    assert "params.warmth is not a parameter of this trainer" in capsys.readouterr().out
