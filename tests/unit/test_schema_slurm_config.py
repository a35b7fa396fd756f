"""The file of ``potato training agent --slurm-config``."""

from __future__ import annotations

import json

import pytest
from potato_training.schema.check import config_schema
from potato_training.schema.errors import UsageError
from potato_training.schema.slurm_config import read_slurm_config, slurm_config_schema


@pytest.fixture
def read(tmp_path):
    path = tmp_path / "slurm.json"

    def make(value):
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return read_slurm_config(str(path))

    return make


def test_every_key_that_says_something_about_a_job_is_taken(read):
    keys = {"partition": "gpu", "time": "2:00:00", "gres": "gpu:1", "prelude": ["module load x"], "env": {"A": "b"},
            "num_threads": 3, "poll_interval_s": 20, "job_python": "/opt/python", "sbatch_args": ["--exclusive"]}
    found = read(keys)
    assert found.keys == keys and len(found.sha256) == 64 and found.notes == []
    sbatch = {name for name, prop in config_schema()["$defs"]["keys"]["properties"].items() if "x-sbatch" in prop}
    assert sbatch <= set(slurm_config_schema()["properties"])


@pytest.mark.parametrize(("text", "words"), [
    ({"partitoin": "gpu"}, "did you mean partition?"),
    ({"host": "login"}, "host is no key of this file (the agent runs on that machine)"),
    ({"remote_dir": "/x"}, "start the agent with --workdir"),
    ({"time": "soon"}, "not a Slurm time"),
    ({"sbatch_args": ["--output=x"]}, "--output belongs to the program"),
    ({"prelude": ["#SBATCH --mem=1"]}, "prelude cannot carry #SBATCH lines"),
    ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "the scheduler sets CUDA_VISIBLE_DEVICES"),
    ({"poll_interval_s": "often"}, "poll_interval_s"),
    ('{"time": "1:00", "time": "2:00"}', "'time' is there twice"),
    ('{"time" "1:00"}', "slurm.json:1:9: not JSON"),
    ("[]", "not a JSON object"),
    ("\xff{", "not JSON"),
])
def test_what_is_wrong_is_named(read, text, words):
    with pytest.raises(UsageError) as refused:
        read(text)
    assert words in refused.value.message + (refused.value.hint or "")


def test_every_problem_is_told_at_once(read):
    with pytest.raises(UsageError) as refused:
        read({"user": "ada", "tim": "1", "num_threads": 0})
    assert len(refused.value.message.splitlines()) == 3


def test_notes_are_no_errors(read):
    assert any("no GPU" in note for note in read({"time": "1:00:00"}).notes)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_slurm_config(str(tmp_path / "none.json"))
