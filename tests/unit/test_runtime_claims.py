"""Claims: at most once, by whom it concerns, and never beside another run."""

import threading

import pytest
from potato_training.runtime import claims
from potato_training.runtime.store import Store

AGENT = {"id": "a1", "hostname": "lab", "version": "", "python": "", "gpus": []}
OTHER = {**AGENT, "id": "a2"}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store.sqlite")


def queue(store, run_id, backend="station", claimable=True, kind="agent"):
    store.insert(run_id, trainer="t", schemas=("s",), params={}, backend=backend, config="config.yaml",
                 trigger="cli", started_by="ada", backend_type=kind)
    if claimable:
        store.note(run_id, claimable=True)


def test_the_oldest_run_of_the_backend_is_given_once_and_owed_from_then_on(store):
    queue(store, "r1", backend="elsewhere")
    queue(store, "r2")
    queue(store, "r3")
    assert claims.claim(store, "station", AGENT).run_id == "r2"
    run = store.get("r2")
    assert (run.state, run.facts["agent"]["hostname"]) == ("preparing", "lab")
    assert run.started == run.facts["timings"]["preparing"]
    assert [(r.run_id, r.kind) for r in store.releases()] == [("r2", "agent")]
    assert claims.claim(store, "station", OTHER) is None, "one run executes at a time"


def test_the_same_agent_gets_its_run_again_until_it_has_reported(store):
    queue(store, "r1")
    assert claims.claim(store, "station", AGENT).run_id == "r1"
    store.advance("r1", "running")
    assert claims.claim(store, "station", AGENT).run_id == "r1"
    store.note("r1", report={"exit_code": 0})
    assert claims.claim(store, "station", AGENT) is None


@pytest.mark.parametrize("why", ["building", "cancelled", "no bundle"])
def test_what_cannot_start_now_is_not_given(store, why):
    queue(store, "r1", claimable=why != "no bundle")
    if why == "building":
        queue(store, "local", backend="local", claimable=False, kind="local")
        store.advance("local", "building")
    if why == "cancelled":
        store.wish("r1", "cancel")
    assert claims.claim(store, "station", AGENT) is None
    assert store.get("r1").state == "queued"
    assert store.releases() == []


def test_a_job_pending_in_a_scheduler_holds_nobody_back(store):
    queue(store, "pending", backend="cluster", claimable=False, kind="slurm")
    store.advance("pending", "waiting")
    queue(store, "r1")
    assert claims.claim(store, "station", AGENT).run_id == "r1"


def test_many_at_once_get_it_once(store):
    queue(store, "r1")
    start, got = threading.Barrier(8), []

    def ask(number):
        start.wait()
        run = claims.claim(store, "station", {**AGENT, "id": f"a{number}"})
        if run is not None:
            got.append(number)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert store.get("r1").facts["agent"]["id"] == f"a{got[0]}"
