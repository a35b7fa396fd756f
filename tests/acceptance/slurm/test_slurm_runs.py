"""Whole runs on a cluster, from the queue to the end."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest

HELD = [{"after": 999999, "state": "RUNNING"}]
LONG = {"steps": 100000, "step_seconds": 0.05}
AT_ONCE = [{"after": 0, "state": "RUNNING", "node": "node07"}]


def trained(cluster, trainer="test-quick", *more):
    ran = cluster.potato("training", "run", "--trainer", trainer, *more)
    run = cluster.runs()[0]
    said = ran.stdout + ran.stderr + cluster.log(run.run_id) + cluster.places.supervisor_log.read_text()
    assert ran.returncode == 0, said
    assert (run.state, run.settled) == ("succeeded", True)
    mine = lambda: [r for r in cluster.store().releases() if r.run_id == run.run_id]  # noqa: E731
    cluster.wait_until(lambda: not mine(), "the release")
    return run


def page_of(cluster, run):
    """The run's page as ``serve`` shows it."""
    cluster.config.write_text(cluster.config.read_text() + "\ndebug: true\n")
    process = cluster.start("training", "serve", "-p", "0")
    line = process.stdout.readline()
    while "http://" not in line:
        line = process.stdout.readline()
    url = re.search(r"http://[^/\s]+", line)[0]
    with urllib.request.urlopen(f"{url}/admin/training/runs/{run.run_id}") as answer:
        return answer.read().decode()


def test_a_run(cluster):
    cluster.backend(gres="gpu:1", time="1:00:00")
    run = trained(cluster)
    log = cluster.log(run.run_id)
    assert "Submitted SLURM job 4242 (--gres=gpu:1 --time=1:00:00)" in log
    assert "SLURM job 4242: RUNNING on node07" in log
    files = cluster.places.run_dir(run.run_id) / "artifacts"
    assert json.loads((files / "sentiment" / "shares.json").read_text())["labels"]
    assert cluster.submitted() == 1
    cluster.nothing_is_left()
    calls = run.facts["machine"]["scheduler_calls"]
    assert calls["sbatch"] == 1
    counts = ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
    words = f"SLURM job 4242 on node07; calls: {counts}"
    assert words in cluster.potato("training", "show", "last").stdout
    assert words in page_of(cluster, run)


def test_the_script_that_is_submitted_is_the_one_that_compile_prints(cluster):
    run = trained(cluster)
    ran = cluster.potato("compile", "--backend", "cluster", "--trainer", "test-quick", "--run-id", run.run_id)
    assert ran.returncode == 0, ran.stderr
    assert (cluster.places.run_dir(run.run_id) / "job.sh").read_text() == ran.stdout
    assert json.loads((cluster.places.run_dir(run.run_id) / "job.json").read_text())["job_script"] == ran.stdout
    (job,) = cluster.slurm_jobs()
    assert (cluster.fake.root / "jobs" / job / "slurm_script").read_text() == ran.stdout


def test_a_job_that_waits_holds_nobody_back(cluster):
    cluster.fake.scenario(jobs=[{"life": HELD}], life=AT_ONCE)
    first, first_id = cluster.train("test-quick")
    cluster.reaches(first_id, "waiting")
    second = trained(cluster)
    assert second.run_id != first_id
    local = trained(cluster, "test-quick", "--backend", "local")
    assert local.backend == "local"
    assert cluster.run(first_id).state == "waiting"
    cluster.fake.run("fake_slurm", "become", "4242", "RUNNING")
    assert cluster.finish(first)[1] == 0
    cluster.nothing_is_left()


def test_one_squeue_asks_for_all_jobs(cluster):
    cluster.backend(poll_interval_s=1)
    cluster.fake.scenario(life=HELD)
    trains = []
    for _ in range(3):
        trains.append(cluster.train("test-quick"))
        cluster.reaches(trains[-1][1], "waiting")

    def asked():
        calls = cluster.fake.calls("squeue")
        return [set(call["argv"][call["argv"].index("-j") + 1].split(",")) for call in calls if "-j" in call["argv"]]

    ids = {"4242", "4243", "4244"}
    cluster.wait_until(lambda: asked()[-3:] == [ids] * 3, "one question for all")
    for _, run_id in trains:
        cluster.potato("training", "cancel", run_id, check=True)
    for process, run_id in trains:
        cluster.finish(process)
        assert cluster.run(run_id).state == "cancelled"
    cluster.nothing_is_left()


HARM = {"SBATCH_PARTITION": "nope", "SBATCH_JOB_NAME": "x", "SBATCH_ARRAY_INX": "0-2", "SQUEUE_USERS": "nobody",
        "SQUEUE_STATES": "COMPLETED", "SCANCEL_PARTITION": "x", "SCANCEL_STATE": "SUSPENDED", "SLURM_JOB_ID": "7",
        "SLURM_CLUSTERS": "other", "SCONTROL_ALL": "1"}


def test_a_login_shell_that_sets_variables_to_harm(cluster):
    cluster.login_shell(**HARM)
    trained(cluster)
    process, run_id = cluster.train("test-stubborn")
    cluster.reaches(run_id, "running")
    cluster.potato("training", "cancel", run_id, check=True)
    cluster.finish(process)
    assert cluster.ended(run_id).state == "cancelled"
    cluster.nothing_is_left()


def test_the_model_stays_there_when_it_is_not_to_be_fetched(cluster):
    cluster.backend(fetch_artifacts=False)
    run = trained(cluster)
    (job,) = cluster.jobs.iterdir()
    assert [path.name for path in job.iterdir()] == ["artifacts"]
    assert run.facts["report"]["artifact_uri"].endswith(f"/{run.run_id}/artifacts")
    assert not (cluster.places.run_dir(run.run_id) / "artifacts").exists()


def test_keep_remote_keeps_everything_but_the_token(cluster):
    cluster.backend(keep_remote=True)
    run = trained(cluster)
    kept = {path.name for path in (cluster.jobs / run.run_id).iterdir()}
    assert {"slurm.out", "job.sh", "exit_code"} <= kept
    assert "attach.json" not in kept


@pytest.mark.parametrize(("keys", "life", "reason"), [
    ({}, [*AT_ONCE, {"after": 5, "state": "TIMEOUT"}],
     "SLURM job 4242 ended before the worker finished: it reached its time limit"),
    ({}, [{"after": 0, "state": "LAUNCH_FAILURE"}],
     "SLURM job 4242 ended before the worker finished: it could not be launched"),
    ({"prelude": ["module() { return 1; }", "module load cuda"]}, AT_ONCE, "prelude failed (exit 1): module load cuda"),
    ({"job_python": "/no/such/python"}, AT_ONCE, "/no/such/python was not found on node07"),
    ({"env_file": "/no/such/file"}, AT_ONCE, "env_file /no/such/file cannot be read on "),
], ids=["limit", "launch", "prelude", "python", "env_file"])
def test_a_job_that_cannot_finish(cluster, keys, life, reason):
    cluster.fake.scenario(life=life)
    cluster.backend(**keys)
    process, run_id = cluster.train("test-slow", **LONG)
    output, code = cluster.finish(process)
    assert code == 1
    assert reason in cluster.run(run_id).reason, output
    assert cluster.submitted() == 1
    cluster.ended(run_id)
    cluster.nothing_is_left()


def test_sbatchs_refusal(cluster):
    cluster.backend(partition="nope")
    ran = cluster.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 1
    assert "failed: sbatch refused the job: invalid partition specified: nope; Batch job submission" in ran.stdout
    cluster.nothing_is_left()
    assert len([call for call in cluster.fake.calls("sbatch") if "--version" not in call["argv"]]) == 1
    (run,) = cluster.runs()
    assert run.facts["machine"]["scheduler_calls"] == {"sbatch": 1}


def test_a_job_that_will_never_start_says_so_at_once(cluster):
    cluster.fake.scenario(partitions={"short": {"default": True, "max_time": 60}})
    cluster.backend(time="1:00:00")
    process, run_id = cluster.train("test-quick")
    words = "SLURM job 4242 will not start: waiting does not clear PartitionTimeLimit"
    cluster.wait_until(lambda: words in (cluster.run(run_id).facts.get("warnings") or []), "the warning")
    cluster.potato("training", "cancel", run_id, check=True)
    cluster.finish(process)
    assert cluster.ended(run_id).state == "cancelled"
    cluster.nothing_is_left()
