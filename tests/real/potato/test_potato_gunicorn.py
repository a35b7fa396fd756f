"""Potato with the plugin under gunicorn: two workers, each with its own look at the config, or forked after one."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize("how", ["each", "preload"])
def test_a_save_and_a_run_under_two_workers(study, potato_server, gunicorn, wait_until, how):
    """The annotator is one of before: a worker learns of new ones by its own requests only."""
    alone = potato_server(study)
    dora = alone.annotator("dora")
    dora.label(dora.current()["instance_id"], "sentiment", "negative")
    alone.stop()
    state = json.loads((study.root / "annotation_output" / "dora" / "user_state.json").read_text())
    item = state["instance_id_ordering"][1]
    study.configure(writeback={"min_confidence": 0}, auto_retrain={
        "enabled": True, "trainer": "test-quick", "schemas": ["sentiment"], "update_frequency": 1, "min_interval_s": 0})
    server = gunicorn(study, *(["--preload"] if how == "preload" else []))
    admin = server.admin()
    first = study.ended(wait_until(lambda: study.runs(), "the first automatic run")[0].run_id)
    assert (first.state, first.trigger) == ("succeeded", "auto"), study.log(first.run_id)
    dora = server.annotator("dora", new=False)
    assert {dora.get("/api/current_instance").status for _ in range(20)} == {200}
    dora.label(item, "sentiment", "positive")
    second = wait_until(lambda: len(study.runs()) == 2 and study.runs()[0], "the run after the save")
    assert study.ended(second.run_id).state == "succeeded", study.log(second.run_id)
    proposed = {row["instance_id"]: row["payload"] for row in map(json.loads, study.places.prelabels.open())}
    assert item not in proposed and proposed
    run = admin.start_run()
    assert study.ended(run).state == "succeeded", study.log(run)
    other = next(iter(proposed))

    def everywhere():
        told = [dora.get(f"/training/prelabels?instance_id={other}").json for _ in range(20)]
        return all(one.get("sentiment") in ("positive", "negative") for one in told)

    wait_until(everywhere, "the prelabel in each worker")
    wait_until(lambda: len(study.processes("runtime.supervisor")) <= 1, "the end of a supervisor that found another")
    assert len(re.findall("Booting worker with pid", server.printed)) == 2, "none has died"
    assert "Traceback" not in server.printed
    server.stop()
    study.wait_until(lambda: not study.processes(), "the end of all processes")
