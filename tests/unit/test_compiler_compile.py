"""The one function, and what it hands out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import pytest
from potato_training.compiler import JobSpec, RunRequest, compile_job, compile_run
from potato_training.compiler.sbatch import FLAGS


def test_a_job_is_frozen(compiled):
    spec = compiled("slurm").spec
    assert isinstance(spec, JobSpec)
    with pytest.raises(FrozenInstanceError):
        spec.run_id = "x"
    with pytest.raises(AttributeError):
        spec.place.host = "x"


def test_a_run_is_fully_resolved(compiled):
    run = compiled("slurm", run_id="r1", remote_dir="/a//b/", python="/p", job_python=None, gres="gpu:1", time="90")
    spec = run.spec
    assert (spec.run_id, spec.attempt, spec.trainer, spec.schemas) == ("r1", 1, "sklearn-text", ("sentiment",))
    assert spec.job_dir == "/a/b/jobs/r1"
    assert (spec.place.name, spec.place.type, spec.place.host) == ("there", "slurm", "login")
    assert (spec.place.worker_python, spec.place.worker_python_key) == ("/p", "python")
    assert spec.place.flags == ("--gres=gpu:1", "--time=90")
    assert run.main == "job.sh"
    assert list(run.files)[:3] == ["job.sh", "launch.sh", "probe.sh"]


def test_files_are_a_mapping_that_knows_its_names(compiled):
    files = compiled("ssh").files
    assert "venv.sh" not in files
    assert len(files) == len(list(files)) == 5
    with pytest.raises(KeyError):
        files["job.sh"]
    assert "venv.sh" in compiled("ssh", packages=["x"]).files


def test_a_backend_that_the_config_does_not_have(compiled, new_project):
    config = new_project(["a"])
    with pytest.raises(KeyError):
        compile_run(config, RunRequest("r", "nope", "t", ()), version="1")


def test_every_flag_comes_once_and_in_order(compiled):
    keys = {key: f"v{n}" for n, key in enumerate(FLAGS)}
    lines = [line for line in compiled("slurm", **dict(reversed(keys.items()))).files["job.sh"].splitlines()
             if line.startswith("#SBATCH")]
    assert lines[4:] == [f"#SBATCH {flag}={keys[key]}" for key, flag in FLAGS.items()]


@pytest.mark.parametrize(("value", "shown"), [
    (0, "--nice=0"), (-5, "--nice=-5"), (None, None),
])
def test_numbers_that_count_as_set(compiled, value, shown):
    assert (shown in compiled("slurm", nice=value).spec.place.flags) == (shown is not None)


def test_an_export_of_the_users_own_takes_the_place_of_ours(compiled):
    assert "--export=ALL" in compiled("slurm").spec.place.fixed_flags
    assert "--export=ALL" not in compiled("slurm", sbatch_args=["--export=NONE"]).spec.place.fixed_flags
    assert "--export=ALL" in compiled("slurm", sbatch_args=["--exportx=NONE"]).spec.place.fixed_flags


def test_secrets_are_in_no_script(compiled):
    """env_file's name is; what is in it never gets here."""
    for kind in ("ssh", "slurm"):
        run = compiled(kind, env_file="~/secrets.env")
        assert all("SBATCH --export" not in text or "--export=ALL" in text for text in run.files.values())
        assert [name for name, text in run.files.items() if "secrets.env" in text] == [
            "job.sh" if kind == "slurm" else "launch.sh"]


def test_threads_that_compile_at_once_do_not_mix_up_places(compiled):
    def one(n):
        return f"/remote/{n}/" in compiled("slurm", remote_dir=f"/remote/{n}/x").files["launch.sh"]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(200)))


def test_an_agent_compiles_its_own_jobs(compiled, shellcheck):
    keys = {"partition": "gpu", "time": "90", "prelude": ["module load x"], "env": {"A": "b c"}, "num_threads": 3}
    ours = compile_job(keys, name="lab", run_id="r1", python="/opt/python", sha256="abc", version="1.2.3")
    assert shellcheck(ours) == ""
    assert "# potato-training 1.2.3: run r1 on backend lab\n# config sha256 abc\n" in ours
    theirs = compiled("slurm", run_id="r1", python="/opt/python", **keys).files["job.sh"]
    key = "model_training.backends.there"
    assert ours.splitlines()[3:] == theirs.replace(key, "slurm-config").splitlines()[3:]
    assert "potato_python='/opt/other'" in compile_job(
        {"job_python": "/opt/other"}, name="lab", run_id="r1", python="/opt/python", sha256="abc", version="1")
