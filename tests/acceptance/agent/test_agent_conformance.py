"""What any agent does, asked of ours and of the one in examples/agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from potato_training.runtime.protocol_types import BundleFile, Principal, ProtocolError

EXAMPLE = Path(__file__).parents[3] / "examples" / "agent" / "agent.py"
LAB = Principal("backend", "lab")
RUNNING = ["event", "status", {"state": "running"}]
PLAN = [RUNNING, ["predictions", "p\n"], ["exit", 0]]


@pytest.fixture(params=["ours", "example"])
def begin(request, bench, tcp_server):
    """``begin(plan)``: the agent, asking a server; its worker does the plan."""
    if request.param == "example" and not hasattr(tarfile, "data_filter"):
        pytest.skip("the example needs a Python whose tarfile has filters")
    bench.intake.tokens[bench.token] = LAB
    url = tcp_server(bench.intake)

    def start(plan=PLAN, token=None):
        if request.param == "ours":
            return bench.start_poll(url, plan=plan, token=token)
        (bench.folder / "token").write_text((token or bench.token) + "\n")
        agent = subprocess.Popen(
            [sys.executable, str(EXAMPLE), url, "lab-1", str(bench.stub(list(plan)))], cwd=bench.folder,
            env={**{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")},
                 "TOKEN_FILE": str(bench.folder / "token")},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
        bench.agents.append(agent)
        return agent

    return start


def kinds(job):
    return [event["event"] for event in job.worker_events]


def test_a_job_from_claim_to_result(bench, begin):
    job = bench.add_job(owner=LAB)
    begin()
    assert bench.wait_for_result()["exit_code"] == 0
    assert job.result["reason"] == "finished"
    assert kinds(job) == ["status", "result"]
    assert job.predictions == b"p\n"


def test_job_after_job(bench, begin):
    begin()
    for number in range(2):
        job = bench.add_job(owner=LAB, run_id=f"run-{number}")
        bench.wait_until(lambda job=job: job.result, "its result")


def test_a_token_that_is_refused_ends_it(bench, begin):
    agent = begin(token="x" * 43)
    assert agent.wait(60) == 1
    assert b"does not take this token" in agent.stderr.read()


def test_an_answer_that_is_lost_costs_nothing(bench, begin):
    """Every request fails once, after the server has taken it in."""
    job = bench.add_job(owner=LAB)
    failed = set()
    real = {name: getattr(bench.intake, name) for name in ("claim", "events", "result")}

    def losing(name):
        def ask(*arguments):
            answer = real[name](*arguments)
            if name not in failed:
                failed.add(name)
                raise ProtocolError(502, {"error": "lost on the way"})
            return answer

        return ask

    for name in real:
        setattr(bench.intake, name, losing(name))
    begin()
    bench.wait_until(lambda: "result" in failed and job.result, "the result")
    assert kinds(job) == ["status", "result"]
    assert len({claim["agent_id"] for claim in job.claims}) == 1


def test_it_reports_while_the_worker_says_nothing(bench, begin):
    job = bench.add_job(owner=LAB)
    begin([RUNNING, ["wait_control", "keep"], *PLAN[1:]])
    bench.wait_for_worker_event(event="status")
    before = job.batches
    bench.wait_until(lambda: job.batches > before + 3, "heartbeats")
    job.keep = True
    assert bench.wait_for_result()["exit_code"] == 0
    assert job.predictions == b"p\n"


def test_cancel_stops_the_worker(bench, begin):
    job = bench.add_job(owner=LAB, grace_seconds=20)
    begin([["ignore_term"], RUNNING, ["wait_control", "stop"],
           ["event", "result", {"status": "cancelled"}], ["exit", 4]])
    bench.wait_for_worker_event(event="status")
    job.cancel = True
    result = bench.wait_for_result()
    assert (result["exit_code"], result["reason"]) == (4, "cancelled")
    assert job.predictions is None


def test_a_worker_that_does_not_heed_is_killed_after_the_grace(bench, begin):
    job = bench.add_job(owner=LAB, grace_seconds=1)
    begin([["ignore_term"], RUNNING, ["hang"]])
    bench.wait_for_worker_event(event="status")
    job.cancel = True
    assert bench.wait_for_result()["exit_code"] == 128 + 9


def test_410_stops_the_worker_and_is_acknowledged(bench, begin):
    job = bench.add_job(owner=LAB)
    begin([["own_pid"], RUNNING, ["hang"]])
    bench.wait_for_worker_event(event="status")
    pid = next(int(e["msg"]) for e in job.worker_events if e["event"] == "log")
    job.over = True
    assert bench.wait_for_result()["reason"] == "gone"
    bench.wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the worker's end")


def test_a_failed_worker_is_reported_with_its_code(bench, begin):
    bench.add_job(owner=LAB)
    begin([RUNNING, ["exit", 3]])
    assert bench.wait_for_result()["exit_code"] == 3


def test_too_many_predictions_are_not_sent_again(bench, begin):
    job = bench.add_job(owner=LAB)
    job.limit_bytes = 1
    begin()
    assert bench.wait_for_result()["reason"] == "predictions-too-large"
    assert len(bench.intake.sinks) == 1


def test_a_bundle_that_is_not_what_the_job_says_is_not_trained_on(bench, begin, tmp_path):
    """Swapped between the claim and the download for another one that is good in itself."""
    other = tmp_path / "other.tar.gz"
    job = bench.add_job(owner=LAB, files={"manifest.json": b"evil"})
    other.write_bytes(job.bundle.read_bytes())
    bench.intake.jobs.clear()
    job = bench.add_job(owner=LAB)
    bench.intake.bundle_file = lambda job: BundleFile(other, other.stat().st_size, "another")
    begin()
    result = bench.wait_for_result()
    assert (result["exit_code"], result["reason"]) == (None, "bundle")
    assert kinds(job) == []


def test_a_batch_that_the_server_forgot_is_sent_again(bench, begin):
    job = bench.add_job(owner=LAB)
    begin([RUNNING, ["wait_control", "keep"], *PLAN[1:]])
    bench.wait_for_worker_event(event="status")
    job.worker_events.clear()  # a server that lost power
    job.keep = True
    assert bench.wait_for_result()["exit_code"] == 0
    assert kinds(job) == ["status", "result"]


def test_the_example_is_one_page_and_has_no_dependencies():
    lines = [line for line in EXAMPLE.read_text("utf-8").splitlines() if line.strip()]
    assert len(lines) < 115
    code = f"import ast,sys; t=ast.parse(open({str(EXAMPLE)!r}).read())\n" \
           "names={a.name.split('.')[0] for n in ast.walk(t) if isinstance(n, ast.Import) for a in n.names}\n" \
           "names|={n.module.split('.')[0] for n in ast.walk(t) if isinstance(n, ast.ImportFrom)}\n" \
           "import json; print(json.dumps(sorted(names - set(sys.stdlib_module_names))))"
    assert json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) == []
