"""Whole runs on a cluster, from the queue to the end."""

from __future__ import annotations

import json


def test_a_run(cluster):
    ran = cluster.potato("training", "run", "--trainer", "test-quick")
    (run,) = cluster.runs()
    log = cluster.log(run.run_id)
    assert ran.returncode == 0, ran.stdout + ran.stderr + log + cluster.places.supervisor_log.read_text()
    assert (run.state, run.settled) == ("succeeded", True)
    assert "Submitted SLURM job 4242" in log
    assert "SLURM job 4242: RUNNING on node07" in log
    files = cluster.places.run_dir(run.run_id) / "artifacts"
    assert json.loads((files / "sentiment" / "shares.json").read_text())["labels"]
    assert cluster.submitted() == 1
    cluster.nothing_is_left()
