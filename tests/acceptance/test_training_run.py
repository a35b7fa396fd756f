"""The main job: from a project's annotations to a model, scores and prelabels."""

from __future__ import annotations

import json
import os
import re
import stat
from importlib.util import find_spec
from pathlib import Path

import pytest


def modes(root):
    return {path: stat.S_IMODE(path.lstat().st_mode) for path in [root, *root.rglob("*")]}


def test_a_run_ends_in_scores_predictions_and_prelabels(study):
    if not find_spec("sklearn"):
        pytest.skip("needs scikit-learn")
    ran = study.potato("training", "run", "config.yaml", "--trainer", "sklearn-text")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (run,) = study.runs()
    run_dir = study.places.run_dir(run.run_id)
    assert run.state == "succeeded"
    assert "confusion" in ran.stdout
    assert "macro-F1" in ran.stdout
    assert str(study.places.prelabels) in ran.stdout or "training/prelabels.jsonl" in ran.stdout
    rows = [json.loads(line) for line in (run_dir / "predictions.jsonl").read_text().splitlines()]
    assert {row["payload"] for row in rows} <= {"positive", "negative"}
    assert len(rows) == run.facts["predictions"]["rows"]
    prelabels = [json.loads(line) for line in study.places.prelabels.read_text().splitlines()]
    labelled = set()
    for state in (study.root / "annotation_output").glob("*/user_state.json"):
        labelled |= set(json.loads(state.read_text())["instance_id_to_label_to_value"])
    assert prelabels
    assert not {row["instance_id"] for row in prelabels} & labelled
    assert (run_dir / "artifacts" / "sentiment").is_dir()
    assert json.loads((run_dir / "manifest.json").read_text())["splits"]["train"]["n"] == run.facts["splits"]["train"]
    study.nothing_is_left()


def test_the_record_says_who_where_with_what_and_how_long(study):
    study.potato("training", "run", "--trainer", "test-quick", check=True)
    shown = study.potato("training", "show", check=True).stdout
    assert shown == study.potato("training", "show", "last", "config.yaml", check=True).stdout
    assert shown.splitlines()[0] in study.potato("training", "show", str(study.config), check=True).stdout
    for word in ("succeeded", "test-quick", "sentiment", "train", "config", "building", "local (", "prelabels  "):
        assert word in shown
    assert "repeat      potato training run --backend local --trainer test-quick --schemas sentiment\n" in shown
    record = json.loads(study.potato("training", "show", "last", "--json", check=True).stdout)
    assert record["facts"]["machine"]["python"]
    assert record["facts"]["config_sha256"]
    assert re.fullmatch("[0-9a-f]{32}", record["facts"]["code_hash"])
    assert record["facts"]["timings"]["running"] <= record["ended"]
    listed = json.loads(study.potato("training", "runs", "--json", check=True).stdout)
    assert listed == [record]
    assert "worker on" in study.potato("training", "logs", check=True).stdout


def test_what_there_is_to_learn_from(many_schemes):
    said = many_schemes.potato("training", "labels", check=True).stdout
    assert said.splitlines()[0] == "60 items, 40 of them annotated, 3 annotators"
    assert re.search(r"^delivery +53$", said, re.M) and "\nnote (text)\nnothing can train it\n" in said
    found = json.loads(many_schemes.potato("training", "labels", "--json", check=True).stdout)
    for who, one in found["schemes"]["topics"]["people"].items():
        assert re.search(rf"^{who} +{one['annotations']} +{one['with_consensus']:.3f}$", said, re.M)
    assert not many_schemes.places.root.exists()


def test_one_run_over_every_scheme_that_can_be_trained(many_schemes):
    if not find_spec("sklearn"):
        pytest.skip("needs scikit-learn")
    ran = many_schemes.potato("training", "run", "--trainer", "sklearn-text")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (run,) = many_schemes.runs()
    labels = {
        "sentiment": {"positive", "negative"}, "topics": {"price", "quality", "delivery"},
        "strength": {"1", "2", "3", "4", "5"}, "lang": {"en", "de"},
    }
    assert set(run.schemas) == set(labels)
    assert set(run.facts["result"]["metrics"]) == set(labels)
    run_dir = many_schemes.places.run_dir(run.run_id)
    seen = set()
    for line in (run_dir / "predictions.jsonl").read_text().splitlines():
        row = json.loads(line)
        payload = row["payload"] if isinstance(row["payload"], list) else [row["payload"]]
        assert set(payload) <= labels[row["schema_name"]]
        seen.add(row["schema_name"])
    assert seen == set(labels)
    for name in labels:
        assert any((run_dir / "artifacts").glob(f"{name}*")), name
        assert name in ran.stdout
    many_schemes.nothing_is_left()


def test_files_are_for_the_owner_only_under_any_umask(study):
    old = os.umask(0)
    try:
        process, run_id = study.train("test-slow", steps=600, step_seconds=0.05)
        study.reaches(run_id, "running")
        for root in (study.places.job_dir(run_id), study.places.root):
            for path, mode in modes(root).items():
                assert mode & 0o077 == 0, f"{path}: {mode:o}"
                if root != study.places.root:
                    assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"
        socket = Path(json.loads((study.places.root / "supervisor.json").read_text())["socket"])
        assert stat.S_IMODE(socket.lstat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.lstat().st_mode) == 0o700
        study.potato("training", "cancel", run_id, check=True)
        study.finish(process)
    finally:
        os.umask(old)
    study.nothing_is_left()
    assert not socket.parent.exists()


def test_the_token_is_in_no_command_line_environment_or_file(study):
    study.env["POTATO_TRAINING_TOKEN"] = "sesame-of-a-person"
    process, run_id = study.train("test-slow", steps=600, step_seconds=0.05)
    study.reaches(run_id, "running")
    token = json.loads((study.places.job_dir(run_id) / "attach.json").read_text())["token"]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for name in ("cmdline", "environ"):
                try:
                    assert token.encode() not in (entry / name).read_bytes(), f"{entry.name} {name}"
                except OSError:
                    continue
    (worker,) = study.processes("worker --spec")
    assert b"sesame" not in Path(f"/proc/{worker}/environ").read_bytes()
    for path in study.places.root.rglob("*"):
        if path.is_file() and path.name != "attach.json":
            assert token.encode() not in path.read_bytes(), path
    study.potato("training", "cancel", run_id, check=True)
    study.finish(process)


def test_runs_wait_in_order_and_one_executes_at_a_time(study):
    first, first_id = study.train("test-slow", steps=10, step_seconds=0.05)
    second, second_id = study.train("test-quick")
    third, third_id = study.train("test-quick")
    for process in (first, second, third):
        assert study.finish(process)[1] == 0
    times = [study.run(run_id).facts["timings"] for run_id in (first_id, second_id, third_id)]
    ends = [study.run(run_id).ended for run_id in (first_id, second_id, third_id)]
    assert times[1]["building"] >= ends[0]
    assert times[2]["building"] >= ends[1]
    study.nothing_is_left()


def test_stop_and_keep_ends_early_and_succeeds(study):
    process, run_id = study.train("test-slow", steps=100000, step_seconds=0.05)
    study.reaches(run_id, "running")
    study.wait_until(lambda: study.run(run_id).facts.get("progress"), "progress")
    study.potato("training", "cancel", run_id, "--keep", check=True)
    output, code = study.finish(process)
    assert code == 0, output
    assert study.run(run_id).facts["result"]["kept"] is True
    assert (study.places.run_dir(run_id) / "predictions.jsonl").exists()
    study.nothing_is_left()


def test_old_runs_are_pruned_folder_and_row_but_never_what_is_published(study):
    study.configure(retain_runs=2)
    study.potato("training", "run", "--trainer", "test-quick", check=True)
    published = study.runs()[0].run_id
    for _ in range(4):
        assert study.potato("training", "run", "--trainer", "test-crash").returncode == 1
    kept = [run.run_id for run in study.runs()]
    assert published in kept
    assert len(kept) == 3
    assert {path.name for path in study.places.runs.iterdir()} == set(kept)


def test_a_moved_project_keeps_its_runs(study, tmp_path):
    study.potato("training", "run", "--trainer", "test-quick", check=True)
    study.nothing_is_left()
    moved = tmp_path / "elsewhere" / "study"
    moved.parent.mkdir()
    study.root.rename(moved)
    study.root = moved
    assert "succeeded" in study.potato("training", "runs", check=True).stdout
    assert study.potato("training", "logs", "last", check=True).stdout
    study.root = moved.rename(tmp_path / "review-project")
