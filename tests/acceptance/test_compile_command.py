"""``potato compile`` as a person uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from potato_training.compiler import RunRequest, compile_run
from potato_training.runtime.places import Places
from potato_training.runtime.store import Store
from potato_training.schema.config import load_or_raise

from potato_training import __version__

GOOD = {
    "gpu-server": {"type": "ssh", "host": "gpu.example.org", "packages": ["torch"]},
    "cluster": {"type": "slurm", "host": "login", "remote_dir": "~/pt", "gres": "gpu:1", "time": "12:00:00"},
    "lab-workstation": {"type": "agent"},
}


@pytest.fixture
def place(tmp_path, write_project):
    """A project with one backend of each type; its directory."""
    folder = tmp_path / "study"
    answers = {who: {f"i{n}": {"sentiment": ("positive", "negative")[n % 2]} for n in range(1, 31)} for who in "ab"}
    write_project(folder, 40, answers, training={"backend": "cluster", "backends": GOOD})
    return folder


def test_job_sh_alone_is_printed_and_warnings_go_elsewhere(potato, place, shellcheck):
    done = potato("compile", cwd=place)
    assert done.returncode == 0
    assert done.stdout.startswith("#!/bin/bash -l\n")
    assert "#SBATCH --job-name=potato-example\n" in done.stdout
    assert shellcheck(done.stdout) == ""
    assert done.stderr.count("\n") == 1
    assert "is long on a shared cluster" in done.stderr


def test_what_is_printed_is_what_the_runtime_would_execute(potato, place):
    config = load_or_raise(place / "config.yaml")
    for backend in ("cluster", "gpu-server"):
        asked = RunRequest("20260101-000000-abcdef", backend, "sklearn-text", ("sentiment",))
        run = compile_run(config, asked, version=__version__)
        done = potato("compile", "--backend", backend, "--run-id", asked.run_id, "--json", cwd=place)
        assert json.loads(done.stdout)["files"] == dict(run.files)
        done = potato("compile", "--backend", backend, "--run-id", asked.run_id, cwd=place)
        assert done.stdout == run.files[run.main]


def test_ssh_prints_launch_sh(potato, place):
    done = potato("compile", "--backend", "gpu-server", cwd=place)
    assert done.stdout.startswith("#!/bin/sh\n")
    assert "potato_training.worker.agent" in done.stdout


@pytest.mark.parametrize(("backend", "word"), [
    ("local", "potato_training.worker"), ("lab-workstation", "potato training agent"),
])
def test_backends_without_scripts_say_what_they_run(potato, place, backend, word):
    done = potato("compile", "--backend", backend, cwd=place)
    assert done.returncode == 0
    assert word in done.stdout
    assert all(line.startswith("#") for line in done.stdout.splitlines())


def test_all_shows_each_script_under_its_name(potato, place):
    done = potato("compile", "--backend", "gpu-server", "--all", cwd=place)
    assert [line for line in done.stdout.splitlines() if line.startswith("==> ")] == [
        f"==> {name} <==" for name in ("launch.sh", "probe.sh", "venv.sh", "receive_code.sh", "send_artifacts.sh",
                                       "remove_job.sh")]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--backend", "clutser"], "there is no backend 'clutser'"),
    (["--trainer", "nope"], "there is no trainer 'nope'"),
    (["--schemas", "nope"], "there is no annotation scheme 'nope'"),
    (["--param", "nope=1"], "there is no parameter nope"),
    (["--run-id", "a b"], "not a name for a run"),
    (["--run-id", "../x"], "not a name for a run"),
    (["--bundle"], "--bundle needs --output"),
    (["--diff", "x", "--output", "y"], "--diff compares"),
])
def test_wrong_requests_are_one_line(potato, place, arguments, message):
    done = potato("compile", *arguments, cwd=place)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_config_with_errors_prints_what_validate_prints(potato, place):
    config = json.loads((place / "config.yaml").read_text())
    config["model_training"]["backends"]["cluster"].update(pyhton="x", remote_dir="/tmp/x")
    (place / "config.yaml").write_text(json.dumps(config))
    done = potato("compile", cwd=place)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == potato("validate", cwd=place).stdout
    assert "did you mean python" in done.stderr


def test_a_missing_config_is_one_line(potato, tmp_path):
    done = potato("compile", "nowhere.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "nowhere.yaml" in done.stderr
    assert "Traceback" not in done.stderr


# --- output ----------------------------------------------------------------------------------------


def test_output_writes_and_writes_again(potato, place):
    first = potato("compile", "--output", "out", cwd=place)
    assert first.returncode == 0, first.stderr
    names = ["job.sh", "launch.sh", "probe.sh", "receive_code.sh", "remove_job.sh", "send_artifacts.sh"]
    assert sorted(p.name for p in (place / "out").glob("*.sh")) == names
    assert (place / "out" / "job.sh").read_text() == potato("compile", cwd=place).stdout
    config = json.loads((place / "config.yaml").read_text())
    config["model_training"]["backends"]["cluster"]["time"] = "1:00:00"
    (place / "config.yaml").write_text(json.dumps(config))
    assert potato("compile", "--output", "out", cwd=place).returncode == 0
    assert "--time=1:00:00" in (place / "out" / "job.sh").read_text()


@pytest.mark.parametrize("edit", ["foreign", "edited", "link", "folder"])
def test_output_leaves_alone_what_it_did_not_write(potato, place, edit):
    out = place / "out"
    if edit == "edited":
        potato("compile", "--output", "out", cwd=place)
        (out / "job.sh").write_text((out / "job.sh").read_text() + "echo mine\n")
    else:
        out.mkdir()
        if edit == "foreign":
            (out / "job.sh").write_text("echo mine\n")
        elif edit == "link":
            (place / "elsewhere").write_text("echo mine\n")
            (out / "job.sh").symlink_to(place / "elsewhere")
        else:
            (out / "job.sh").mkdir()
    before = sorted(p.name for p in out.iterdir())
    done = potato("compile", "--output", "out", "--backend", "cluster", "--param", "max_features=200", cwd=place)
    if edit == "edited":
        assert "has been changed since" in done.stderr
    else:
        assert "potato compile did not write it" in done.stderr
    assert done.returncode == 1
    assert sorted(p.name for p in out.iterdir()) == before
    if edit != "folder":
        assert "mine" in (out / "job.sh").read_text()


def test_a_bundle_runs_by_hand(potato, place, fake_slurm, wait_until):
    config = json.loads((place / "config.yaml").read_text())
    config["model_training"]["backends"]["cluster"]["job_python"] = sys.executable
    (place / "config.yaml").write_text(json.dumps(config))
    done = potato("compile", "--output", "by hand", "--bundle", "--param", "max_features=300", cwd=place)
    assert done.returncode == 0, done.stderr
    again = potato("compile", "--output", "by hand", "--bundle", "--param", "max_features=300", cwd=place)
    assert again.returncode == 0, again.stderr
    folder = place / "by hand"
    assert folder.stat().st_mode & 0o777 == 0o700
    spec = json.loads((folder / "spec.json").read_text())
    assert spec["params"] == {"max_features": 300}
    assert not spec["orphan"]["stdin"] or spec["on_disconnect"] == "finish"
    job_id = fake_slurm.run("sbatch", "--parsable", "job.sh", cwd=folder).stdout.strip()
    fake_slurm.tick()
    wait_until(lambda: fake_slurm.job(job_id)["state"] in ("COMPLETED", "FAILED"), "the job's end", patience=240)
    assert (folder / "exit_code").read_text() == "0\n", (folder / "stderr.log").read_text()
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "result"
    assert events[-1]["status"] == "succeeded"
    assert (folder / "predictions.jsonl").exists()


def test_a_bundle_does_not_replace_somebody_elses_folders(potato, place):
    (place / "out" / "code").mkdir(parents=True)
    (place / "out" / "code" / "mine.py").touch()
    done = potato("compile", "--output", "out", "--bundle", cwd=place)
    assert done.returncode == 1
    assert "potato compile did not write it" in done.stderr
    assert [p.name for p in (place / "out").rglob("*")] == ["code", "mine.py"]


# --- diff ------------------------------------------------------------------------------------------


@pytest.fixture
def earlier(place):
    """A run of the past with the scripts that it executed; its id."""
    config = load_or_raise(place / "config.yaml")
    where = Places(config.task_dir)
    where.prepare()
    run = Store(where.store).insert(
        "20260101-000000-abcdef", trainer="sklearn-text", schemas=("sentiment",), params={}, backend="cluster",
        config="config.yaml", trigger="cli", started_by="me")
    asked = RunRequest(run.run_id, "cluster", "sklearn-text", ("sentiment",))
    folder = where.run_dir(run.run_id)
    folder.mkdir(parents=True)
    for name, text in compile_run(config, asked, version=__version__).files.items():
        (folder / name).write_text(text)
    return run.run_id


def test_diff_of_nothing(potato, place, earlier):
    done = potato("compile", "--diff", earlier, cwd=place)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no difference" in done.stderr


def test_diff_shows_what_has_changed(potato, place, earlier):
    config = json.loads((place / "config.yaml").read_text())
    config["model_training"]["backends"]["cluster"]["time"] = "1:00:00"
    (place / "config.yaml").write_text(json.dumps(config))
    done = potato("compile", "--diff", "last", cwd=place)
    assert done.returncode == 1
    assert "-#SBATCH --time=12:00:00\n+#SBATCH --time=1:00:00\n" in done.stdout
    assert f"--- {earlier}/job.sh\n+++ now/job.sh\n" in done.stdout


def test_diff_with_a_run_that_is_not_there(potato, place):
    done = potato("compile", "--diff", "x", cwd=place)
    assert done.returncode == 1
    assert "there is no run 'x'" in done.stderr


# --- lightness -------------------------------------------------------------------------------------


def test_compile_imports_nothing_heavy(place):
    code = (
        "import sys; from potato_training.cli.main import main; main(['compile', '--backend', 'cluster']); "
        "heavy = {'jsonschema', 'flask', 'rich', 'torch', 'sklearn', 'numpy', 'sqlite3', 'subprocess'}; "
        "heavy &= set(sys.modules); "
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def test_templates_are_read_from_a_zip_too(tmp_path):
    """Nothing asks the file system for a template: the package's own loader reads it."""
    import zipfile

    import potato_training

    rooms = {"compiler": None, "templates": None, "schema": None}
    root = Path(potato_training.__file__).parents[1]
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("potato_training/__init__.py", "__version__ = '0'\n")
        for room in rooms:
            for path in sorted((root / room).rglob("*")):
                if path.suffix in (".py", ".j2", ".json"):
                    archive.write(path, f"potato_training/{room}/{path.relative_to(root / room)}")
    code = "from potato_training.compiler.scripts import template_text; print(template_text('sbatch/job.sh.j2')[:11])"
    done = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'p.zip')!r}); "
                           + code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "#!/bin/bash\n", done.stderr
