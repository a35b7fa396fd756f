"""Before Potato serves: its validator with the plugin, what keeps it from starting, and what is left alone."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

pytestmark = [pytest.mark.real, pytest.mark.slow]

BACKENDS = {
    "gpu-server": {"type": "ssh", "host": "gpu.example.org", "gpus": "auto"},
    "cluster": {"type": "slurm", "host": "login.example.org", "remote_dir": "~/pt", "time": "2:00:00", "gres": "gpu:1"},
    "lab": {"type": "agent"},
}


@pytest.fixture
def run(both):
    """``run(study, "-m", "module", ...)``: the interpreter that has both packages, in the study's directory."""
    python, env = both

    def call(study, *arguments, check=None):
        done = subprocess.run([python, *map(str, arguments)], cwd=study.root, env={**study.env, **env},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        assert check is None or done.returncode == check, done.stdout + done.stderr
        return done

    return call


def configured(study, plugins=True, **training):
    config = yaml.safe_load(study.config.read_text())
    config["model_training"].update(training)
    if plugins:
        config["plugins"] = ["training-backends"]
    study.config.write_text(yaml.safe_dump(config, sort_keys=False))


def test_potatos_own_validator_accepts_our_keys_and_nothing_is_made(study, run):
    configured(study, backends=BACKENDS, backend="gpu-server", confirmed_prelabels="leave_out",
               notify={"webhook": "http://127.0.0.1:1/x"})
    before = sorted(str(p) for p in study.root.rglob("*"))
    said = run(study, "-m", "potato.validate_cli", "--strict", "--json", "config.yaml", check=0)
    assert json.loads(said.stdout)["ok"] is True
    run(study, "-m", "potato.preview_cli", "config.yaml", "--format", "summary", check=0)
    assert not study.places.root.exists()
    assert sorted(str(p) for p in study.root.rglob("*") if "layouts" not in p.parts) == before
    config = yaml.safe_load(study.config.read_text())
    config["model_trainig"] = {}
    config["model_training"]["retain_run"] = 3
    study.config.write_text(yaml.safe_dump(config))
    said = run(study, "-m", "potato.validate_cli", "--strict", "--json", "config.yaml", check=1)
    assert "retain_run" in said.stdout, "a typo stays one"


def test_our_validate_brings_potatos_findings_along_without_those_that_the_plugin_settles(study, run):
    configured(study, backends=BACKENDS, backend="gpu-server", confirmed_prelabels="leave_out")
    text = study.config.read_text()
    ask = ("-m", "potato_training.cli", "validate", "--strict", "--json")
    assert json.loads(run(study, *ask, check=0).stdout)["warnings"] == []
    study.config.write_text(text + "\nmy_own_key: 1\n")
    assert [f["path"] for f in json.loads(run(study, *ask, check=1).stdout)["warnings"]] == ["my_own_key"]
    run(study, *ask, "--training-only", check=0)


def test_a_config_with_errors_keeps_the_server_from_starting(study, run):
    configured(study, retain_runs="many", backend="nowhere")
    done = run(study, "-m", "potato_training.cli", "start", "config.yaml", "-p", "1", check=1)
    errors = [line.partition(": error: ")[2] for line in done.stderr.splitlines()]
    said = [text.partition(":")[0] for text in errors if text]
    assert sorted(said) == ["model_training.backend", "model_training.retain_runs"], done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Potato is not started: ")
    assert not (study.places.root / "store.sqlite").exists()
    assert json.loads(run(study, "-m", "potato.validate_cli", "--json", "config.yaml").stdout), "a report, no exit"


LEFT_ALONE = """
import logging, sys
import potato, potato.flask_server
import potato.training.manager as manager, potato.training.routes as routes, potato.training.writeback as writeback
from potato.server_utils.config_module import KNOWN_CONFIG_KEYS
exec(sys.argv[1])
before = (getattr(manager, "init_training_manager", None), routes.training_bp,
          getattr(writeback, "rehydrate_predictions", None), dict(KNOWN_CONFIG_KEYS["model_training"]))
from potato.plugins import load_plugin
load_plugin("training-backends")
after = (getattr(manager, "init_training_manager", None), routes.training_bp,
         getattr(writeback, "rehydrate_predictions", None), dict(KNOWN_CONFIG_KEYS["model_training"]))
print("same" if before == after else "changed")
"""


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("potato.__version__ = '2.13.0'", "Potato 2.13.0 is not a release that it knows (2.12)"),
        ("del writeback.rehydrate_predictions", "has no potato.training.writeback.rehydrate_predictions"),
        ("KNOWN_CONFIG_KEYS['model_training'] = dict.fromkeys(['x'])", None),
    ],
)
def test_a_potato_that_is_not_known_is_left_alone(study, run, change, line):
    done = run(study, "-c", LEFT_ALONE, change, check=0)
    about = [text for text in done.stderr.splitlines() if "training-backends: " in text]
    if line is None:
        assert done.stdout.splitlines()[-1] == "changed", "the same test sees a change where there is one"
        assert about == []
    else:
        assert done.stdout.splitlines()[-1] == "same"
        assert len(about) == 1
        assert line in about[0]
        assert "Potato's own training stays in place" in about[0]


SCHEMES = [
    {"annotation_type": "radio", "name": "one", "description": "?", "labels": ["a", "b"]},
    {"annotation_type": "multiselect", "name": "several", "description": "?", "labels": ["a", "b", "c"]},
    {"annotation_type": "likert", "name": "force", "description": "?", "size": 5, "min_label": "x", "max_label": "y"},
    {"annotation_type": "select", "name": "language", "description": "?", "labels": ["en", "de"]},
    {"annotation_type": "slider", "name": "warmth", "description": "?", "min_value": 0, "max_value": 10,
     "starting_value": 5},
    {"annotation_type": "number", "name": "count", "description": "?"},
    {"annotation_type": "text", "name": "note", "description": "?"},
    {"annotation_type": "span", "name": "ents", "description": "?", "labels": ["PER", "ORG"]},
]


@pytest.mark.parametrize("training", [{}, {"enabled": True}], ids=["off", "on"])
def test_a_project_of_every_kind_of_scheme_starts_with_the_plugin_named(study, potato_server, training):
    config = yaml.safe_load(study.config.read_text())
    config["model_training"] = {}
    config["annotation_schemes"] = SCHEMES
    study.config.write_text(yaml.safe_dump(config))
    more = {"writeback": {"schemas": ["one", "several"]}}
    server = potato_server(study, config={"model_training": {**training, **more}})
    page = server.annotator("dora").get("/annotate")
    assert page.status == 200
    assert list(server.pages.iterdir()), "no other server's pages are shown"
    for scheme in SCHEMES:
        assert f'"{scheme["name"]}"' in page.text
    status = server.admin().get().status
    assert status == (200 if training else 404)
    assert study.places.root.exists() == (status == 200), "switched off, nothing is made"


SHOWN = [
    ({"annotation_type": "radio", "name": "one", "labels": ["a", "b"]}, "b", ["b"]),
    ({"annotation_type": "multiselect", "name": "several", "labels": ["a", "b", "c"]}, ["a", "c"], ["a", "c"]),
    ({"annotation_type": "likert", "name": "force", "labels": ["low", "middle", "high"]}, "middle", ["middle"]),
]


def test_every_shape_that_is_published_is_chosen_on_the_page_and_is_only_a_proposal(study, potato_server):
    config = yaml.safe_load(study.config.read_text())
    config["annotation_schemes"] = [{**scheme, "description": "?"} for scheme, _, _ in SHOWN]
    config["model_training"]["writeback"] = {"schemas": [scheme["name"] for scheme, _, _ in SHOWN]}
    study.config.write_text(yaml.safe_dump(config))
    study.places.prepare()
    rows = [{"instance_id": "r001", "schema": scheme["name"], "payload": payload, "confidence": 0.9, "run_id": "r"}
            for scheme, payload, _ in SHOWN]
    study.places.prelabels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dora = potato_server(study).annotator("dora")
    assert dora.current()["instance_id"] == "r001"
    inputs = re.findall(r"<input [^>]*>", dora.get("/annotate").text)
    for scheme, _, labels in SHOWN:
        ours = [tag for tag in inputs if f'schema="{scheme["name"]}"' in tag]
        assert [re.search(r'label_name="([^"]*)"', tag)[1] for tag in ours if "checked" in tag] == labels
    assert dora.get("/training/prelabels?instance_id=r001").json == {
        scheme["name"]: payload for scheme, payload, _ in SHOWN}
