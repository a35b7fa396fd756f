"""Runs through a real sshd, from the queue to the end."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.real


def trained(study, trainer="test-quick", *more):
    ran = study.potato("training", "run", "--trainer", trainer, *more)
    assert ran.returncode == 0, ran.stdout + ran.stderr + study.places.supervisor_log.read_text()
    (run, *_) = study.runs()
    assert (run.state, run.settled) == ("succeeded", True)
    study.nothing_is_left()
    return run, ran.stdout


@pytest.mark.parametrize("kind", ["bash", "dash", "fish", "tcsh", "chatty"])
def test_a_run_through_any_login_shell(remote, kind):
    study = remote(kind)
    run, _ = trained(study)
    files = study.places.run_dir(run.run_id) / "artifacts"
    assert json.loads((files / "sentiment" / "shares.json").read_text())["labels"]
    assert study.places.prelabels.exists()
    assert f"gpu.example.org is {run.facts['machine']['host']}, Python 3." in study.log(run.run_id)


def test_a_banner_and_a_talkative_shell_are_no_error(remote, lab):
    banner = lab.root / "banner"
    banner.write_text("*** Authorised users only ***\nerror=4242\n")
    study = remote("chatty", server=lab.serve(f"Banner {banner}"))
    trained(study)
    ran = study.potato("training", "check", "gpu-server", "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout


def test_a_run_is_stopped_after_its_time(remote):
    study = remote()
    study.configure(max_wall_seconds=2, grace_seconds=5)
    ran = study.potato("training", "run", "--trainer", "test-slow", "--param", "steps=100000")
    assert ran.returncode == 1
    (run,) = study.runs()
    assert run.reason == "The run was stopped after 2 seconds (model_training.max_wall_seconds)"
    study.ended(run.run_id)
    study.nothing_is_left()
