"""Two processes that train one model, on the CPU: the same scores as one, and one end for both."""

import json
import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from potato_training.worker.failures import TrainerError
from potato_training.worker.trainers import hf_team

pytestmark = pytest.mark.skipif(not (find_spec("torch") and find_spec("transformers")), reason="needs transformers")


@pytest.fixture(scope="session")
def steady(models, text_python, tmp_path_factory):
    """The tiny BERT without dropout: each process would draw its own."""
    if text_python("import torch; print(torch.distributed.is_available())") != "True\n":
        pytest.skip("this torch has no torch.distributed")
    target = tmp_path_factory.mktemp("steady") / "bert"
    shutil.copytree(models["bert"], target)
    config = json.loads((target / "config.json").read_text())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (target / "config.json").write_text(json.dumps(config))
    return str(target)


def params(model, **more):
    return {"model": model, "epochs": 3, "learning_rate": 3e-3, "batch_size": 7, "early_stopping": 0, "processes": 2,
            "precision": "fp32", **more}


def others(job):
    """pids of the ranks that this job's worker started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"potato_training.worker.trainers.hf_team" in command and str(job.dir).encode() in b" ".join(command):
                found.append(int(entry.name))
    return found


def all_gone(job):
    job.wait_until(lambda: not others(job), "the end of the other rank")


def test_two_processes_make_the_model_that_one_makes(quick_job, steady):
    """Batches of seven, so that the ranks' shares differ, and five of the last."""
    found = []
    for processes in (1, 2):
        job = quick_job("hf-text-classification", name=f"of{processes}", schemas=("topics",), train=61,
                       params=params(steady, processes=processes, gradient_accumulation=2))
        assert job.run() == 0, job.stderr[-3000:]
        assert any("2 processes train together" in m for m in job.logs("info")) is (processes == 2)
        found.append(job)
        all_gone(job)
    one, two = (job.predictions() for job in found)
    for a, b in zip(one, two, strict=True):
        assert a["instance_id"] == b["instance_id"]
        assert a["scores"] == {k: pytest.approx(v, abs=2e-3) for k, v in b["scores"].items()}
    scores = [job.last["metrics"]["topics"]["test"]["accuracy"] for job in found]
    assert scores[0] == scores[1]
    assert len([e for e in found[1].events("metric") if e["name"].endswith("loss") and e["split"] == "val"]) == 3


@pytest.mark.parametrize(("word", "code"), [("stop", 4), ("keep", 0)])
def test_a_cancel_and_a_keep_are_for_all_of_them(quick_job, steady, word, code):
    job = quick_job("hf-text-classification", params=params(steady, epochs=1000)).start()
    job.until('"phase":"fit"')
    assert len(others(job)) == 1
    job.control(word)
    assert job.end() == code, job.stderr[-3000:]
    all_gone(job)
    if word == "keep":
        assert job.last["kept"] is True and len(job.events("result")) == 1


def test_one_that_is_killed_ends_the_run_with_its_name(quick_job, steady):
    job = quick_job("hf-text-classification", params=params(steady, epochs=1000)).start()
    job.until('"phase":"fit"')
    (other,) = others(job)
    os.kill(other, signal.SIGKILL)
    assert job.end() == 1, job.stderr[-3000:]
    assert job.last["message"] == "training process 1 of this run ended (exit -9)"


def test_one_whose_rank_0_is_killed_ends_and_the_job_goes_on_from_its_checkpoint(quick_job, steady):
    job = quick_job("hf-text-classification", params=params(steady, epochs=2, checkpoint_minutes=0)).start()
    folder = job.dir / "checkpoints" / "sentiment"
    job.wait_until(lambda: any(folder.glob("step-*/COMPLETE")), "a checkpoint")
    job.process.kill()
    job.end()
    all_gone(job)
    assert job.run(env={"SLURM_RESTART_COUNT": "1"}) == 0, job.stderr[-3000:]
    assert any(m.startswith("resumed from step ") for m in job.logs("info"))
    all_gone(job)


@pytest.mark.parametrize(("wanted", "device", "given", "present", "says"), [
    (None, "cpu", None, 8, 1), (2, "cpu", None, 1, 2), (3, "cpu", None, 3, 3), (None, "cuda:0", None, 4, 1),
    (None, "cuda:0", "0,1", 2, 2), (None, "cuda:1", "0,1", 2, 1), (3, "cuda:0", None, 4, 3),
    (None, "cuda:0", "GPU-1", 1, 1), (None, "cuda:0", "0,1,2,3,4,5", 6, 4), (None, "mps", None, 8, 1)])
def test_as_many_as_the_run_was_given(wanted, device, given, present, says):
    assert hf_team.how_many(wanted, device, given, present, batch_size=4) == says


@pytest.mark.parametrize(("wanted", "device", "present", "says"), [
    (3, "cuda:0", 2, "processes: 3 were asked for and there are 2 GPUs"),
    (64, "cpu", 2, "processes: 64 were asked for and there are 2 processors"),
    (3, "cpu", 1, "processes: 3 were asked for and there are 1 processors"),
    (5, "cpu", 8, "processes: 5 were asked for and batch_size is 4")])
def test_more_than_there_is_work_or_room_for(wanted, device, present, says):
    with pytest.raises(TrainerError, match=says):
        hf_team.how_many(wanted, device, "0,1", present, batch_size=4)
