"""Checkpoints: a loop that was interrupted anywhere ends in the same weights; one that is not whole is passed over."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
from potato_training.worker.bundle import Example
from potato_training.worker.failures import Cancelled
from potato_training.worker.trainers import hf_loop, hf_precision
from potato_training.worker.trainers.base import Handle, Task
from potato_training.worker.trainers.hf_batches import Encoded
from potato_training.worker.trainers.hf_checkpoint import Checkpoints, fingerprint

PARAMS = {"batch_size": 8, "gradient_accumulation": 1, "learning_rate": 0.05, "weight_decay": 0.01,
          "warmup_ratio": 0.2, "early_stopping": 2, "head_learning_rate": None}
STEPS, EPOCHS = 5, 6            # five steps an epoch; the third epoch is the best, so it ends after the fifth


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Imported when a test of this file runs: each process of the suite reads the file, and one runs its tests."""
    global torch
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    torch.set_num_threads(1)    # two that wait for each other spin, and on a busy machine against everybody else


def Model():
    """Bag of tokens with dropout and a running count, so that generator and buffers matter."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed = torch.nn.Embedding(20, 8)
            self.dropout = torch.nn.Dropout(0.3)
            self.classifier = torch.nn.Linear(8, 3)
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

        def forward(self, input_ids, **_):
            self.seen += 1
            return SimpleNamespace(logits=self.classifier(self.dropout(self.embed(input_ids).mean(dim=1))))

    return Model()


class Stopped(Exception):
    pass


class Run(Handle):
    def __init__(self, stop_after=None):
        self.said, self.warnings, self.asked, self.stop_after = [], [], 0, stop_after

    def log(self, msg):
        self.said.append(msg)

    def warn(self, msg):
        self.warnings.append(msg)

    def keep_wanted(self):
        self.asked += 1
        if self.stop_after is not None and self.asked > self.stop_after:
            raise Stopped
        return False


def collate(encoded, indices):
    return {"input_ids": torch.tensor([encoded.rows[n]["input_ids"] for n in indices])}


collate.device = "cpu"


def train(directory=None, run=None, mark="m", minutes=0, **changes):
    run, model = run or Run(), Model()
    encoded = Encoded([{"input_ids": [k % 3 + 1, k % 7 + 4, 12]} for k in range(40)])
    scores = [0.1, 0.2, 0.9, 0.3, 0.4, 0.5]
    checkpoints = Checkpoints(str(directory), mark, minutes, run) if directory else None

    def evaluate():
        return scores[(loop.step - 1) // STEPS], 1.0
    loop = hf_loop.Loop(model, run, {**PARAMS, **changes}, "nominal", 0, collate, hf_precision.Precision("fp32", "cpu"),
                        evaluate=evaluate, checkpoints=checkpoints)
    loop.train(encoded, torch.tensor([k % 3 for k in range(40)]), EPOCHS)
    return loop


def state(loop):
    return {n: p.clone() for n, p in loop.model.state_dict().items()}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Hundreds of checkpoints are made here, and no machine is switched off."""
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture(scope="module")
def uninterrupted():
    return train()


@pytest.mark.parametrize("stop_after", [1, 4, 5, 6, 15, 17, 24])
def test_a_loop_that_was_interrupted_ends_in_the_same_weights(tmp_path, uninterrupted, stop_after):
    with pytest.raises(Stopped):
        train(tmp_path / "c", Run(stop_after))
    run = Run()
    loop = train(tmp_path / "c", run)
    assert f"resumed from step {stop_after}" in run.said
    assert run.asked == 5 * STEPS - stop_after
    for name, value in state(uninterrupted).items():
        assert torch.equal(value, state(loop)[name]), name
    assert loop.best[:2] == uninterrupted.best[:2] == ((0.9, -1.0), 3)


def test_an_interruption_between_two_checkpoints_repeats_what_lay_between(tmp_path, uninterrupted):
    with pytest.raises(Stopped):
        train(tmp_path / "c", Run(9))
    shutil.rmtree(tmp_path / "c" / "step-00000009")
    run = Run()
    loop = train(tmp_path / "c", run)
    assert "resumed from step 8" in run.said
    assert all(torch.equal(v, state(loop)[n]) for n, v in state(uninterrupted).items())


def test_only_the_last_two_are_kept_and_nothing_half_written(tmp_path):
    train(tmp_path / "c")
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == ["step-00000024", "step-00000025"]


def no_marker(step):
    (step / "COMPLETE").unlink()


def no_state(step):
    (step / "state.json").unlink()


def empty_tensors(step):
    (step / "state.safetensors").write_bytes(b"")


def torn_tensors(step):
    """As long as it should be, and not what was written."""
    path = step / "state.safetensors"
    path.write_bytes(b"\xff" * path.stat().st_size)


class Preempted(Handle):
    """Cancels in the middle of a step, when the dropout of a part of it is drawn already."""

    def __init__(self, at):
        self.looks, self.at = 0, at

    def check(self):
        self.looks += 1
        if self.looks > self.at:
            raise Cancelled


@pytest.mark.parametrize("at", [3, 11, 12])
def test_a_job_that_the_scheduler_stops_saves_its_last_whole_step(tmp_path, monkeypatch, at):
    narrow = {"gradient_accumulation": 2, "batch_size": 4}
    whole = train(**narrow)
    for scheduled in (False, True):
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        if scheduled:
            monkeypatch.setenv("SLURM_JOB_ID", "7")
        with pytest.raises(Cancelled):
            train(tmp_path / "c", Preempted(at), minutes=1000, **narrow)
        assert (tmp_path / "c").exists() is scheduled
    (kept,) = (tmp_path / "c").iterdir()
    assert kept.name == f"step-{at // 2:08d}"
    run = Run()
    loop = train(tmp_path / "c", run, minutes=1000, **narrow)
    assert f"resumed from step {at // 2}" in run.said
    assert all(torch.equal(v, state(loop)[n]) for n, v in state(whole).items())


@pytest.mark.parametrize("spoil", [no_marker, no_state, empty_tensors, torn_tensors])
def test_one_that_is_not_whole_is_passed_over_with_a_word(tmp_path, uninterrupted, spoil):
    with pytest.raises(Stopped):
        train(tmp_path / "c", Run(7))
    spoil(tmp_path / "c" / "step-00000007")
    run = Run()
    loop = train(tmp_path / "c", run)
    assert "resumed from step 6; step 7 was incomplete" in run.said
    assert all(torch.equal(v, state(loop)[n]) for n, v in state(uninterrupted).items())


def test_one_of_another_training_is_not_taken(tmp_path):
    with pytest.raises(Stopped):
        train(tmp_path / "c", Run(3))
    run = Run()
    train(tmp_path / "c", run, mark="other labels")
    said = "starting from the beginning; step 3 is of another training; step 2 is of another training"
    assert said in run.said
    assert run.asked == 5 * STEPS


def test_a_place_that_cannot_be_written_is_a_warning_and_not_the_end(tmp_path, uninterrupted):
    (tmp_path / "file").write_text("")
    run = Run()
    loop = train(tmp_path / "file" / "c", run)
    assert len(run.warnings) == 1 and run.warnings[0].startswith("no checkpoint could be written")
    assert all(torch.equal(v, state(loop)[n]) for n, v in state(uninterrupted).items())


def test_the_state_is_json_and_safetensors(tmp_path):
    train(tmp_path / "c")
    for step in (tmp_path / "c").iterdir():
        assert {p.name for p in step.iterdir()} == {"COMPLETE", "state.json", "state.safetensors"}
        json.loads((step / "state.json").read_text())


def test_they_are_made_when_their_time_has_come(tmp_path):
    train(tmp_path / "c", minutes=1000)
    assert not (tmp_path / "c").exists()


def test_outside_a_run_there_is_no_place_for_them_and_none_are_made(tmp_path):
    from potato_training.worker.trainers import hf_setup
    from potato_training.worker.trainers.base import Task

    params = {"checkpoint_minutes": 0}
    assert hf_setup.checkpoints(Task("s", "nominal", ("a",), params), str(tmp_path), [], [], Run()) is None
    within = hf_setup.checkpoints(Task("s", "nominal", ("a",), params, 0, "here"), str(tmp_path), [], [], Run())
    assert within.directory == "here" and within.minutes == 0
    params["checkpoint_minutes"] = None
    assert hf_setup.checkpoints(Task("s", "nominal", ("a",), params, 0, "here"), str(tmp_path), [], [], Run()) is None


def test_a_training_is_known_by_its_items_labels_parameters_and_the_model_s_own_bytes(tmp_path):
    """A newer version of a model has files as long as before; a copy of it elsewhere is the same model."""
    weights = bytes(range(256)) * 40_000
    for name, data in {"a": weights, "copy": weights, "newer": weights[1:] + b"\0"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(data)
        (tmp_path / name / "config.json").write_text("{}")
    task = Task("s", "nominal", ("x", "y"), {"epochs": 1, "checkpoint_minutes": 10})
    items = [Example("1", "half \ud83d", 0), Example("2", "b", 1)]

    def mark(name="a", task=task, items=items):
        return fingerprint(task, str(tmp_path / name), items, [])
    assert mark() == mark("copy") == mark(task=replace(task, params={"epochs": 1, "checkpoint_minutes": 0}))
    others = [mark("newer"), mark(task=replace(task, labels=("y", "x"))), mark(task=replace(task, seed=1)),
              mark(task=replace(task, params={"epochs": 2})), mark(items=items[::-1]),
              mark(items=[items[0], Example("2", "b", 0)])]
    assert len({mark(), *others}) == 7
