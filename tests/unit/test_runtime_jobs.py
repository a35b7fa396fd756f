"""The worker's spec of a run: paths of a model mean the same as the config's other paths, on this machine only."""

from pathlib import Path

import pytest
from potato_training.compiler import RunRequest
from potato_training.runtime.jobs import worker_spec


@pytest.fixture
def config(new_project):
    made = new_project(3, {"ann": {"i1": {"sentiment": "positive"}}},
                       training={"backends": {"gpu": {"type": "ssh", "host": "gpu"}}})
    (made.path.parent / "models" / "tiny").mkdir(parents=True)
    return made


def spec(config, model, backend="local"):
    run = RunRequest("r1", backend, "hf-text-classification", ("sentiment",), {"model": model, "epochs": 2})
    return worker_spec(run, config, "stop")["params"]


@pytest.mark.parametrize("written", ["models/tiny", "./models/tiny", "models/../models/tiny"])
def test_a_directory_is_looked_for_from_the_config(config, written, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert spec(config, written) == {"model": str(config.path.parent / "models" / "tiny"), "epochs": 2}


def test_one_that_is_not_there_is_named_in_full(config):
    assert spec(config, "./nowhere")["model"] == str(config.path.parent / "nowhere")
    assert spec(config, "~/nowhere")["model"] == str(Path.home() / "nowhere")


@pytest.mark.parametrize("name", ["some-org/model", "bert-base-uncased", "/models/tiny"])
def test_a_name_and_a_whole_path_stay_as_they_are(config, name):
    assert spec(config, name)["model"] == name


def test_elsewhere_the_path_is_the_other_machines(config):
    assert spec(config, "models/tiny", "gpu")["model"] == "models/tiny"
