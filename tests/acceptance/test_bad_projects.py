"""Projects that nothing can be learned from: one clear line each, in the terminal and in the record."""

from __future__ import annotations

import json

import pytest


def states(study):
    return sorted((study.root / "annotation_output").glob("*/user_state.json"))


def items(study):
    return json.loads((study.root / "data" / "reviews.json").read_text())


def write_items(study, value):
    (study.root / "data" / "reviews.json").write_text(json.dumps(value))


def relabel(study, change):
    """``change(pairs)`` -> new pairs, for every item of every annotator."""
    for path in states(study):
        state = json.loads(path.read_text())
        labels = state["instance_id_to_label_to_value"]
        state["instance_id_to_label_to_value"] = {k: new for k, v in labels.items() if (new := change(v))}
        path.write_text(json.dumps(state))


def no_labels(study):
    relabel(study, lambda pairs: None)


def one_class(study):
    relabel(study, lambda pairs: [[{"schema": "sentiment", "name": "positive"}, "positive"]])


def broken_state(study):
    states(study)[0].write_text('{"user_id": "alice", "instance_id_to')


def no_data_file(study):
    (study.root / "data" / "reviews.json").unlink()


def duplicate_ids(study):
    write_items(study, [*items(study), items(study)[3]])


def no_texts(study):
    """A wrong text_key looks like this; single items without a text are left out with a warning."""
    write_items(study, [{key: value for key, value in row.items() if key != "text"} for row in items(study)])


def no_items(study):
    write_items(study, [])


def not_json(study):
    (study.root / "data" / "reviews.json").write_text('[{"id": "r1", "text": "good"}, {"id": ')


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (no_labels, ["sentiment"]),
        (one_class, ['"positive"', "at least 2 labels"]),
        (broken_state, ["alice", "user_state.json"]),
        (no_data_file, ["reviews.json"]),
        (duplicate_ids, ["r004"]),
        (no_texts, ["r001", "text"]),
        (no_items, ["reviews.json"]),
        (not_json, ["reviews.json"]),
    ],
)
def test_a_bad_project_is_told_in_one_line(study, spoil, words):
    spoil(study)
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 1
    assert "Traceback" not in ran.stdout + ran.stderr
    (end,) = [line for line in ran.stdout.splitlines() if line.startswith("failed: ")]
    for word in words:
        assert word in end, end
    (run,) = study.runs()
    assert run.state == "failed"
    assert run.reason in end
    study.nothing_is_left()


def test_an_unknown_scheme_is_wrong_usage_and_names_those_there_are(study):
    ran = study.potato("training", "run", "--schemas", "mood")
    assert ran.returncode == 2
    assert "there is no annotation scheme 'mood'" in ran.stderr
    assert "sentiment" in ran.stderr
    assert study.runs() == []


def test_a_scheme_that_nothing_can_train_is_refused(many_schemes):
    ran = many_schemes.potato("training", "run", "--schemas", "note")
    assert ran.returncode == 2
    assert "cannot train scheme 'note' (text)" in ran.stderr


def test_one_label_alone_teaches_nothing_and_does_not_stop_the_others(study):
    unclear = "annotation_schemes:\n- {annotation_type: multiselect, name: unclear, labels: [unclear]}\n"
    study.config.write_text(study.config.read_text().replace("annotation_schemes:\n", unclear))
    ran = study.potato("training", "run", "--schemas", "unclear")
    assert ran.returncode == 2
    assert "cannot train scheme 'unclear' (it has 1 label, and at least 2 are needed)" in ran.stderr
    planned = json.loads(study.potato("compile", "--json", check=True).stdout)
    assert planned["schemas"] == ["sentiment"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--trainer", "bert"], ["there is no trainer 'bert'", "sklearn-text"]),
        (["--backend", "gpu"], ["there is no backend 'gpu'", "local"]),
        (["--schemas", ","], ["--schemas ,: no name is in there"]),
        (["--param", "nonsense=1"], ["nonsense"]),
        (["--param", "steps"], ["steps"]),
        (["--trainer", "test-slow", "--param", "steps=many"], ["steps"]),
        (["--trainer", "test-slow", "--param", "steps=-1"], ["steps"]),
    ],
)
def test_wrong_usage_is_one_line_and_starts_nothing(study, arguments, words):
    ran = study.potato("training", "run", *arguments)
    assert ran.returncode in (1, 2)
    assert "Traceback" not in ran.stderr
    for word in words:
        assert word in ran.stderr
    assert study.runs() == []


def test_a_config_with_errors_starts_nothing_and_prints_what_validate_prints(study):
    study.configure(retain_runs="many")
    checked = study.potato("validate")
    ran = study.potato("training", "run")
    assert checked.returncode == ran.returncode == 1
    (finding,) = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert finding in ran.stderr
    assert study.runs() == []


def test_a_switched_off_training_says_so(study):
    study.configure(enabled=False)
    ran = study.potato("training", "run")
    assert ran.returncode == 1
    assert "model training is switched off in config.yaml" in ran.stderr


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_something_in_the_place_of_the_training_folder_is_told(study, kind):
    if kind == "file":
        study.places.root.write_text("")
    else:
        study.places.root.symlink_to("/nowhere/at/all")
    for command in (["run"], ["runs"]):
        ran = study.potato("training", *command)
        assert ran.returncode == 1
        assert "cannot be used" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_a_project_directory_that_is_not_there_is_not_made(study):
    text = study.config.read_text().replace("task_dir: .", f"task_dir: {study.root}/nowhere/deep")
    study.config.write_text(text)
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 1
    assert "nowhere/deep is not there" in ran.stderr
    assert not (study.root / "nowhere").exists()


def test_a_linked_training_folder_keeps_its_own_mode(study, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    study.places.root.symlink_to(shared)
    assert study.potato("training", "run", "--trainer", "test-quick").returncode == 0
    assert shared.stat().st_mode & 0o777 == 0o755


def test_a_terminal_that_cannot_show_a_character_does_not_fail_the_run(study):
    study.env.update(PYTHONIOENCODING="ascii")
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stderr


def test_a_full_disk_at_the_other_end_of_the_output_is_one_line(study):
    import subprocess

    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            study.argv("training", "runs"), cwd=study.root, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ran.returncode == 1
    assert "No space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_list_of_no_runs_is_not_asked_for(study):
    ran = study.potato("training", "runs", "--limit", "0")
    assert ran.returncode == 2
    assert ran.stderr == "potato: --limit 0: at least 1\n"


def test_what_may_not_be_read_is_named(study):
    (study.root / "out").write_text("in the way")
    ran = study.potato("compile", "--backend", "local", "--output", "out/deep", "--bundle")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == "potato: out/deep: Not a directory"


def test_a_config_that_is_not_there(study):
    ran = study.potato("training", "run", "nowhere.yaml")
    assert ran.returncode == 1
    assert "nowhere.yaml" in ran.stderr
    assert "Traceback" not in ran.stderr
    ran = study.potato("training", "runs", "nowhere.yaml")
    assert ran.returncode == 1
    assert "nowhere.yaml" in ran.stderr
