"""Config: what the other rooms see of config.yaml."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from potato_training.schema.check import acknowledged, check
from potato_training.schema.config import ConfigError, load, load_or_raise
from potato_training.schema.errors import UserError

GOOD = Path(__file__).parents[1] / "fixtures" / "configs" / "good"


def test_the_tutorials_config():
    config = load_or_raise(GOOD / "tutorial.yaml")
    assert config.path == GOOD / "tutorial.yaml"
    assert config.sha256 == hashlib.sha256((GOOD / "tutorial.yaml").read_bytes()).hexdigest()
    assert config.task_dir == GOOD
    assert config.data_files == (GOOD / "data/reviews.json",)
    assert config.output_dir == GOOD / "annotation_output"
    assert (config.id_key, config.text_key, config.task_name, config.debug) == ("id", "text", "Review Sentiment", False)
    assert list(config.backends) == ["local", "gpu-server", "cluster", "lab-workstation"]
    assert [b.type for b in config.backends.values()] == ["local", "ssh", "slurm", "agent"]
    cluster = config.backends["cluster"].keys
    assert cluster["time"] == "04:00:00"
    assert cluster["gres"] == "gpu:1"
    assert (cluster["partition"], cluster["requeue"], cluster["poll_interval_s"]) == (None, False, 30)
    assert "type" not in cluster
    assert config.training["max_wall_seconds"] == 3600
    assert config.training["grace_seconds"] == 20
    assert config.training["writeback"] == {
        "schemas": ["sentiment"], "min_confidence": 0.6, "include_unlabeled": True, "field": "predictions"}
    assert "backends" not in config.training
    assert config.raw["model_training"]["enabled"] == "true"
    assert config.scheme("sentiment").labels == ("positive", "negative")
    assert config.scheme("mood") is None


def test_the_kinds_of_every_scheme_type():
    config = load_or_raise(GOOD / "multi-project.yaml")
    assert {s.name: (s.kind, s.labels) for s in config.schemes} == {
        "sentiment": ("nominal", ("positive", "negative")),
        "topics": ("multilabel", ("price", "quality", "delivery")),
        "strength": ("ordinal", ("1", "2", "3", "4", "5")),
        "note": (None, ()),
        "stars": (None, ()),
        "lang": ("nominal", ("en", "de")),
        "conf": (None, ()),
        "ents": (None, ("PRODUCT", "PROBLEM")),
    }


def test_values_have_the_types_that_their_keys_want():
    config = load_or_raise(GOOD / "every-key.yaml")
    training = config.training
    assert (training["enabled"], training["retain_runs"], training["max_ram_mb"]) == (True, 2, 8000)
    assert type(training["retain_runs"]) is int
    assert training["auto_retrain"]["params"] == {
        "epochs": 3, "learning_rate": 5e-5, "model": "distilbert-base-uncased"}
    ssh = config.backends["gpu-server"].keys
    assert ssh["gpus"] == "0,1"
    assert ssh["env"] == {
        "HF_HOME": "/scratch/hf", "N": "1", "FLAG": "yes", "EMPTY": "", "PATH": "/opt/bin:/usr/bin:/bin"}
    assert ssh["fetch_artifacts"] is False
    slurm = config.backends["cluster"].keys
    assert (slurm["account"], slurm["time"], slurm["mem"]) == ("1234", "6:00:00", "16GB")
    assert config.backends["lab"].keys["queue_timeout_s"] is None


@pytest.mark.parametrize(("written", "gpus"), [
    ("auto", "auto"), ("none", "none"), ('"1"', "1"), ("1", "1"), ("2.0", "2"), ("0,1", "0,1"), ("[0, '2']", "0,2"),
    ("' 0 , 3'", "0,3"), ("GPU-1b2c-3d", "GPU-1b2c-3d"),
])
def test_gpus_are_one_text(tmp_path, written, gpus):
    file = tmp_path / "c.yaml"
    file.write_text(f"model_training: {{backends: {{g: {{type: ssh, host: h, gpus: {written}}}}}}}\n"
                    if "," not in written or written[0] in "['" else
                    f"model_training:\n  backends:\n    g:\n      type: ssh\n      host: h\n      gpus: {written}\n")
    assert load_or_raise(file).backends["g"].keys["gpus"] == gpus


def test_a_config_without_training_has_its_defaults():
    config = load_or_raise(GOOD / "potato-only.yaml")
    assert config.training["enabled"] is False
    assert list(config.backends) == ["local"]
    assert config.scheme("sentiment").labels == ("positive", "no")


def test_paths_are_taken_from_the_configs_directory(tmp_path, monkeypatch):
    (tmp_path / "p").mkdir()
    file = tmp_path / "p" / "c.yaml"
    file.write_text("task_dir: ../q\ndata_files: [a.json, {path: b.csv}, /abs/c.json, ~/d.json]\n"
                    "output_annotation_dir: out/x\n"
                    "machine_annotators: {enabled: true, annotators: [{id: bot}, {id: 'no'}, {}, x]}\n"
                    "item_properties: {id_key: pid, text_key: body}\ndebug: True\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    config = load_or_raise("p/c.yaml")
    assert config.path == file
    assert config.task_dir == tmp_path / "q"
    assert config.data_files == (
        tmp_path / "q/a.json", tmp_path / "q/b.csv", Path("/abs/c.json"), Path("/home/me/d.json"))
    assert config.output_dir == tmp_path / "q/out/x"
    assert config.machine_annotators == ("bot", "no")
    assert (config.id_key, config.text_key, config.debug) == ("pid", "body", True)


def test_a_bad_config_raises_what_validate_prints(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("model_training:\n  retain_runs: many\n  backend: gpu\n")
    assert load(file).config is None
    with pytest.raises(UserError) as caught:
        load_or_raise(file)
    assert isinstance(caught.value, ConfigError)
    assert caught.value.message.splitlines() == [
        f"{file}:2:16: error: model_training.retain_runs: retain_runs is many, where a whole number is expected",
        f"{file}:3:12: error: model_training.backend: backend is 'gpu', and there is no backend of that name; "
        "the backends are local",
    ]
    assert len(caught.value.findings) == 2


def test_the_top_level_port_is_the_web_servers():
    config = load_or_raise(GOOD / "flow-style.yaml")
    assert config.raw["port"] == "9001"
    assert config.backends["gpu"].keys["port"] == 2222


def test_only_validate_reads_the_block_validation(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("validation: {acknowledge: text, x: 1}\nmodel_training: {enabled: true}\n")
    assert load(file).findings == ()
    assert acknowledged(check(str(file))).of("error")


def test_load_never_raises(tmp_path):
    for path in (tmp_path, tmp_path / "none", tmp_path / ("x" * 300), "a\0b"):
        assert load(path).errors


def test_a_trainers_parameters_are_checked_against_its_own_schema(tmp_path):
    words = SimpleNamespace(params_schema={
        "type": "object", "additionalProperties": False,
        "properties": {"epochs": {"type": "integer", "minimum": 1}, "model": {"type": "string"}}})
    file = tmp_path / "c.yaml"
    file.write_text("model_training:\n  auto_retrain: {trainer: mine, params: {epochs: 0, modle: x}}\n")
    errors = load(file, trainers={"mine": words}).errors
    assert [(f.path, f.hint) for f in errors] == [
        ("model_training.auto_retrain.params.epochs", ""),
        ("model_training.auto_retrain.params.modle", "did you mean model?"),
    ]
    assert load(file).errors[0].message == "there is no trainer 'mine'"
    assert load(file, trainers=["mine"]).config is not None
    file.write_text("model_training:\n  auto_retrain: {trainer: mine, params: {epochs: 2.0}}\n")
    params = load(file, trainers={"mine": words}).config.training["auto_retrain"]["params"]
    assert params == {"epochs": 2}
    assert type(params["epochs"]) is int


def test_many_errors_end_early_and_many_notes_do_not(tmp_path):
    file = tmp_path / "c.yaml"
    entries = "".join(f"    b{i}: {{type: slurm, host: h, remote_dir: /x}}\n" for i in range(1500))
    file.write_text(f"model_training:\n  backends:\n{entries}")
    checked = load(file)
    assert len(checked.notes) == 1500
    assert len(checked.config.backends) == 1501
    file.write_text("model_training:\n" + "".join(f"  k{i}: x\n" for i in range(5000)))
    checked = load(file)
    assert len(checked.errors) == 1000
    assert "1000 errors or more" in checked.notes[0].message
