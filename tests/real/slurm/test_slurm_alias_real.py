"""A login alias that leads to two nodes in turn, which share their storage."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal

import pytest

pytestmark = pytest.mark.real

#: What ssh talks through: each new connection goes to the other node than the one before.
TURN = """#!/bin/bash
turn=$(cat '{root}/turn' 2> /dev/null)
case $turn in second) port={second}; next=first ;; *) port={first}; next=second ;; esac
echo "$next" > '{root}/turn'
exec 3<> "/dev/tcp/127.0.0.1/$port"
cat <&3 &
cat >&3
"""


@pytest.fixture(scope="module")
def nodes(lab):
    """Two sshd, each on a machine of its own as far as its name tells."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed (Debian: util-linux)")
    return [lab.serve(prefix=("unshare", "--uts", "sh", "-c", f'hostname login{n}; exec "$@"', "-")) for n in (1, 2)]


@pytest.fixture
def two(login, nodes):
    """A Login through the alias."""
    def make(**keys):
        study = login(**keys)
        turn = study.root / "turn.sh"
        turn.write_text(TURN.format(root=study.root, first=nodes[0].port, second=nodes[1].port))
        turn.chmod(0o755)
        study.ssh_config(f"ProxyCommand {turn}")
        return study
    return make


def cut(study):
    for pid in study.ssh_processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_the_other_nodes_agent_takes_the_job_over(two):
    study = two()
    process, run_id = study.train("test-slow", steps=160, step_seconds=0.05)
    study.reaches(run_id, "running")
    cut(study)
    study.wait_until(lambda: "led to login1 before and leads to login2 now" in study.log(run_id), "the other node")
    study.wait_until(lambda: "took up this job on login2" in study.log(run_id), "the other agent")
    study.wait_until(lambda: len(study.account.processes("worker.agent")) == 1, "the first agent's end")
    output, code = study.finish(process)
    assert code == 0, output + study.log(run_id) + study.places.supervisor_log.read_text()
    steps = [e["current"] for e in study.events(run_id) if e["event"] == "progress" and e.get("phase") == "fit"]
    assert steps == sorted(set(steps))
    assert len(study.job_ids(run_id)) == 1
    study.ended(run_id)
    study.nothing_is_left()


@pytest.mark.thorough("two minutes of waiting")
def test_a_cancel_that_is_released_from_the_other_node(two):
    study = two()
    study.configure(grace_seconds=2)
    process, run_id = study.train("test-stubborn")
    study.reaches(run_id, "running")
    process.kill()
    os.kill(study.supervisor(), signal.SIGKILL)
    study.potato("training", "cancel", run_id, check=True)
    study.wait_until(lambda: study.run(run_id).over, "the end of the run")
    assert study.ended(run_id).state == "cancelled"
    assert len(study.job_ids(run_id)) == 1
    study.nothing_is_left()
