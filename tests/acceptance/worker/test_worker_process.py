"""The worker as a process: its stream, its files, its exit codes."""

import glob
import hashlib
import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLACES = ("~/.pyenv/versions/3.8.*/bin/python", "/usr/bin/python3.8", "/usr/local/bin/python3.8")
OLD = [found for place in PLACES for found in glob.glob(os.path.expanduser(place))][:1]


@pytest.fixture
def check_schema():
    import jsonschema

    def check(name, value):
        schema = json.loads((ROOT / "schema" / name).read_text())
        jsonschema.Draft202012Validator(schema).validate(value)
    return check


def test_a_run_ends_with_predictions_models_and_a_result(make_job, check_schema):
    job = make_job("test-quick", schemas=("sentiment", "stars", "topics"))
    check_schema("spec.schema.json", job.spec)
    assert job.run() == 0
    assert job.exit_code == 0
    for event in job.events():
        check_schema("event.schema.json", event)
    first, last = job.events()[0], job.last
    assert first["event"] == "status" and first["state"] == "running"
    assert {"host", "python", "pid", "software", "device", "gpu", "threads"} <= set(first)
    assert first["pid"] == job.process.pid
    assert last["event"] == "result" and last["status"] == "succeeded" and last["kept"] is False
    assert set(last["metrics"]) == set(last["model_version"]) == {"sentiment", "stars", "topics"}
    assert last["label_order"]["sentiment"] == ["pos", "neu", "neg"]
    data = (job.dir / "predictions.jsonl").read_bytes()
    assert hashlib.sha256(data).hexdigest() == last["predictions_sha256"]
    rows = job.predictions()
    assert len(rows) == last["n_predictions"] == 3 * (12 + 12 + 10)
    for row in rows:
        labels = last["label_order"][row["schema_name"]]
        payload = row["payload"] if row["schema_name"] == "topics" else [row["payload"]]
        assert payload and set(payload) <= set(labels)
        assert 0 <= row["confidence"] <= 1 and set(row["scores"]) == set(labels)
    assert {row["split"] for row in rows} == {"val", "test", "unlabeled"}
    assert not list(job.dir.glob("*.tmp")) and not (job.dir / ".spare").exists()


def test_every_file_of_a_model_is_announced_with_its_size(make_job):
    job = make_job("test-quick")
    job.run()
    announced = {e["path"]: e["bytes"] for e in job.events("artifact")}
    assert announced == {f"artifacts/{name}": len(data) for name, data in job.artifacts().items()}


def test_unlabeled_items_are_predicted_only_when_asked_for(make_job):
    job = make_job("test-quick", include_unlabeled=False)
    job.run()
    assert {row["split"] for row in job.predictions()} == {"val", "test"}


def test_no_metrics_over_fewer_than_five_items(make_job):
    job = make_job("test-quick", val=4, test=0)
    assert job.run() == 0
    metrics = job.last["metrics"]["sentiment"]
    assert set(metrics["val"]) == {"n", "note"} and metrics["val"]["n"] == 4
    assert metrics["test"]["n"] == 0


@pytest.mark.parametrize("python", OLD or [pytest.param(None, marks=pytest.mark.skip("no old Python here"))])
def test_an_old_python_runs_the_travelling_code(make_job, code_tree, python):
    job = make_job("test-quick", schemas=("sentiment", "stars", "topics"))
    assert job.run(python=python, code=code_tree) == 0, job.stderr
    assert job.last["status"] == "succeeded"


@pytest.mark.parametrize("python", OLD or [pytest.param(None, marks=pytest.mark.skip("no old Python here"))])
@pytest.mark.parametrize("trainer", ["sklearn-text", "hf-text-classification"])
def test_a_missing_library_is_said_with_the_way_to_install_it(make_job, code_tree, python, trainer):
    job = make_job(trainer)
    assert job.run(python=python, code=code_tree) == 3
    assert job.exit_code == 3
    assert job.last["message"].startswith(f"Trainer '{trainer}' could not be imported: No module named")
    assert job.last["install_hint"].startswith(f"{python} -m pip install ")


def test_what_is_imported_to_start_is_the_standard_library(code_tree):
    script = (
        "import sys; before = set(sys.modules)\n"
        "import potato_training.worker.session, potato_training.worker.trainers as t\n"
        "t.catalogue()\n"
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(code_tree)})
    # The editable install of the tests' own environment brings its finder along.
    assert set(json.loads(done.stdout.replace("'", '"'))) == {"potato_training"}


def test_what_libraries_print_lands_in_stderr_log(make_job):
    job = make_job("test-chatty")
    assert job.run() == 0
    assert all(e["v"] == 1 for e in job.events())
    for source in ("print", "descriptor", "child"):
        assert f"chatter by {source}" in job.stderr
        assert f"chatter by {source}" not in (job.dir / "events.jsonl").read_text()


def test_files_are_the_owners_alone_whatever_the_umask(make_job):
    job = make_job("test-quick")
    job.run(preexec_fn=lambda: os.umask(0))
    for name in ("predictions.jsonl", "exit_code", "artifacts/sentiment/shares.json"):
        assert stat.S_IMODE((job.dir / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE((job.dir / "artifacts").stat().st_mode) == 0o700


def test_names_of_schemes_are_data(make_job):
    names = ["../../outside", "a/b", "Mood", "mood", ".hidden", "日本", "x" * 200]
    schemas = [{"name": n, "annotation_type": "radio", "kind": "nominal", "labels": ["yes", "no"]} for n in names]
    rows = [{"id": str(n), "text": "t", "labels": {s: ["yes", "no"][n % 2] for s in names}} for n in range(6)]
    job = make_job("test-quick", schemas=schemas, splits={"train": rows, "val": rows, "test": rows})
    assert job.run() == 0
    folders = [job.last["artifacts"][name] for name in names]
    assert len({f.lower() for f in folders}) == len(names)
    assert {f.split("/")[0] for f in folders} == {"artifacts"} and all(f.count("/") == 1 for f in folders)
    assert sorted(p.name for p in (job.dir / "artifacts").iterdir()) == sorted(f.split("/")[1] for f in folders)
    assert set(job.dir.parent.iterdir()) == {job.dir}


SCHEMA = {"name": "sentiment", "annotation_type": "radio", "kind": "nominal", "labels": ["pos", "neu", "neg"]}
ROW = {"id": "1", "text": "x", "labels": {"sentiment": "pos"}}


@pytest.mark.parametrize(("change", "says"), [
    ({"trainer": "no-such"}, "unknown trainer 'no-such'"),
    ({"v": 2}, "spec version 2 is not known"),
    ({"run_id": None}, "run_id is missing"),
    ({"attempt": 0}, "attempt: 0 is less than 1"),
    ({"schemas": []}, "schemas is empty"),
    ({"schemas": [dict(SCHEMA, kind="free")]}, "schemas[0].kind: 'free'"),
    ({"schemas": [dict(SCHEMA, labels=["a", "a"])]}, "has a label twice"),
    ({"schemas": [dict(SCHEMA, labels=[1])]}, "schemas[0].labels must all be texts"),
    ({"schemas": [dict(SCHEMA, labels=["a", "\ud83d b"])]}, "schemas[0].labels: '\\ud83d b' has half of a character"),
    ({"schemas": [dict(SCHEMA, name="other")]}, "the bundle has no scheme 'other'"),
    ({"schemas": [dict(SCHEMA, labels=["neg", "neu", "pos"])]}, "are not those of the spec"),
    ({"schemas": [dict(SCHEMA, name="\ud83d")]}, "schemas[0].name: '\\ud83d' has half of a character"),
    ({"params": {"stepz": 3}}, "params.stepz is not a parameter"),
    ({"params": {"steps": -1}}, "params.steps: -1 is less than 0"),
    ({"params": {"steps": "many"}}, "params.steps: 'many' is not of type integer"),
    ({"limits": {"num_threads": 0}}, "limits.num_threads: 0 is less than 1"),
    ({"on_disconnect": "never"}, "on_disconnect: 'never'"),
    ({"bundle_dir": "nowhere"}, "cannot read"),
])
def test_a_spec_that_cannot_be_run(make_job, change, says):
    job = make_job("test-slow")
    (job.dir / "spec.json").write_text(json.dumps({**job.spec, **change}))
    assert job.run() == 2
    assert job.exit_code == 2
    assert job.last["event"] == "error" and says in job.last["message"]
    assert "\n" not in job.last["message"]


@pytest.mark.parametrize(("text", "says"), [
    ("{", "is not JSON"), ("[]", "must be a JSON object"), (None, "cannot read")])
def test_no_spec_at_all(make_job, text, says):
    job = make_job("test-quick")
    (job.dir / "spec.json").unlink()
    if text is not None:
        (job.dir / "spec.json").write_text(text)
    assert job.run() == 2
    assert job.exit_code == 2 and says in job.last["message"]


@pytest.mark.parametrize(("rows", "says"), [
    ([ROW, '{"id": "2", "text": "cut'], "train.jsonl line 2 is not JSON"),
    ([ROW, '["id"]'], "train.jsonl line 2 has no id"),
    ([ROW, dict(ROW, id="b", labels={"sentiment": "good"})], "train item 'b': 'good' is not a label of 'sentiment'"),
])
def test_a_bundle_that_is_not_what_it_says(make_job, rows, says):
    job = make_job("test-quick", splits={"train": rows})
    assert job.run() == 2
    assert says in job.last["message"]


def test_a_manifest_that_is_gone(make_job):
    job = make_job("test-quick")
    (job.dir / "bundle" / "manifest.json").unlink()
    assert job.run() == 2
    assert "manifest.json" in job.last["message"]


@pytest.mark.parametrize(("how", "code", "says"), [
    ("raise", 1, "ValueError: the test trainer was told to raise"),
    ("refuse", 1, "the test trainer refuses"),
    ("exit", 1, "the trainer ended the process by itself (exit 0)"),
    ("import", 3, "Trainer 'test-crash' could not be imported: No module named 'potato_no_such_package'"),
    ("full", 1, "no space or quota left on"),
])
def test_a_trainer_that_fails(make_job, how, code, says):
    job = make_job("test-crash", params={"how": how})
    assert job.run() == code
    assert job.exit_code == code
    assert job.last["event"] == "error" and says in job.last["message"]
    assert "\n" not in job.last["message"] and "Traceback" not in (job.dir / "events.jsonl").read_text()
    assert "Traceback" in job.stderr
    assert not (job.dir / "predictions.jsonl").exists()


@pytest.mark.parametrize(("how", "code"), [("segfault", -11), ("kill", -9)])
def test_a_worker_that_is_killed_says_nothing(make_job, how, code):
    job = make_job("test-crash", params={"how": how})
    assert job.run() == code
    assert job.exit_code is None and not job.events("result")


@pytest.mark.parametrize(("rows", "says"), [
    ([], "nothing to train on"),
    ([dict(ROW, id=str(n)) for n in range(12)], 'all 12 annotations are "pos"; at least 2 labels are needed'),
    ([dict(ROW, labels={})], "nothing to train on"),
    ([dict(ROW, text="  ")], "nothing to train on"),
])
def test_too_little_to_learn_from(make_job, rows, says):
    job = make_job("test-quick", splits={"train": rows, "val": rows})
    assert job.run() == 1
    assert says in job.last["message"]


def test_items_without_text_are_left_out_with_a_warning(make_job):
    labels = ["pos", "neg"] * 3
    train = [dict(ROW, id=str(n), labels={"sentiment": label}) for n, label in enumerate(labels)]
    train[4]["text"], train[5]["text"] = "", None
    job = make_job("test-quick", splits={"train": train, "val": train, "test": []})
    assert job.run() == 0
    warnings = job.logs("warning")
    assert any("2 of 6 train items have no text" in w for w in warnings)
    assert any("1 of the val items have no readable text" in w for w in warnings)
    assert len(job.predictions()) == 6


def test_a_file_size_limit_is_named_and_nothing_half_written_stays(make_job):
    job = make_job("test-quick", unlabeled=2000)
    limit = 64 * 1024
    code = job.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert code == 1
    assert "file size limit" in job.last["message"] and job.last["code"] == "disk_full"
    assert not list(job.dir.glob("predictions*"))


def test_a_full_disk_is_named(make_job, tmp_path):
    """In a mount namespace of our own, with a job directory of 2 MiB."""
    job = make_job("test-quick", unlabeled=12000)
    script = """
        set -e
        mount -t tmpfs -o size=3m tmpfs "$1"
        cp -r "$2/." "$1" && cd "$1"
        code=0
        "$3" -m potato_training.worker --spec spec.json --exit-code-file exit_code >>events.jsonl 2>>"$4/err" || code=$?
        cp events.jsonl exit_code "$4"; ls > "$4/names"; exit $code
    """
    (tmp_path / "small").mkdir()
    (tmp_path / "out").mkdir()
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path / "small")], check=False,
                      capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", str(tmp_path / "small"), str(job.dir), sys.executable,
         str(tmp_path / "out")], check=False, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "fixtures" / "trainers")})
    assert done.returncode == 1, done.stderr
    last = json.loads((tmp_path / "out" / "events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "error" and last["message"].startswith("no space or quota left on ")
    assert str(tmp_path / "small") in last["message"]
    assert (tmp_path / "out" / "exit_code").read_text() == "1\n"
    assert "predictions" not in (tmp_path / "out" / "names").read_text()


def test_a_job_that_starts_again_keeps_the_schemes_that_it_had_trained(make_job):
    job = make_job("test-slow", schemas=("sentiment", "topics"), params={"steps": 20, "step_seconds": 0.1}).start()
    job.until("training 'topics'")
    job.process.kill()
    job.end()
    model = job.dir / "artifacts" / "sentiment" / "shares.json"
    before = model.stat().st_mtime_ns
    (job.dir / "artifacts" / "topics").mkdir()          # begun, and torn
    assert job.run(env={"SLURM_RESTART_COUNT": "2", "SLURMD_NODENAME": "node07"}) == 0, job.stderr
    assert [e["host"] for e in job.events() if "host" in e][-1] == "node07"     # as squeue calls it
    assert model.stat().st_mtime_ns == before
    assert job.last["attempt"] == 3 and set(job.last["metrics"]) == {"sentiment", "topics"}
    assert "trained before the job was started again" in "".join(job.logs("info"))
    assert {"sentiment/shares.json", "topics/shares.json"} <= set(job.artifacts())
    assert not (job.dir / "checkpoints").exists()


@pytest.mark.parametrize("spoil", ["model", "mark"])
def test_a_scheme_whose_model_is_not_what_was_saved_is_trained_again(make_job, spoil):
    job = make_job("test-quick")
    assert job.run() == 0
    version = job.last["model_version"]["sentiment"]
    done = job.dir / "checkpoints" / "sentiment" / "done.json"
    done.parent.mkdir(parents=True)
    mark = {"run": "run-1", "trainer": "test-quick", "params": {}, "seed": 0, "bundle": "0" * 64,
            "earlier": None, "version": version}
    if spoil == "mark":
        mark["seed"] = 1
    else:
        (job.dir / "artifacts" / "sentiment" / "shares.json").write_text("{}")
    done.write_text(json.dumps(mark))
    assert job.run() == 0, job.stderr
    assert job.last["model_version"]["sentiment"] == version
    assert not any("before the job was started again" in line for line in job.logs("info"))


def test_the_number_of_threads_is_over_what_the_login_shell_says(make_job):
    job = make_job("test-quick", limits={"num_threads": 2})
    job.run(env={"OMP_NUM_THREADS": "1"})
    assert job.events()[0]["threads"] == 2


def test_the_help_has_an_example():
    done = subprocess.run([sys.executable, "-m", "potato_training.worker", "--help"], capture_output=True, text=True,
                          check=True)
    assert "example" in done.stdout
