"""Inside the released Potato: its page is ours, runs start there, and predictions become prelabels of live items."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]


def ids_without_label(study, schema="sentiment"):
    items = [row["id"] for row in json.loads((study.root / "data" / "reviews.json").read_text())]
    labelled = set()
    for state in (study.root / "annotation_output").glob("*/user_state.json"):
        labelled |= json.loads(state.read_text())["instance_id_to_label_to_value"].keys()
    return [item for item in items if item not in labelled]


def test_a_run_from_the_page_and_prelabels_before_and_after_a_restart(study, potato_server, wait_until):
    study.configure(writeback={"min_confidence": 0})
    server = potato_server(study)
    admin = server.admin()
    assert "No runs yet" in admin.get().text
    run = admin.start_run()
    assert study.ended(run).state == "succeeded", study.log(run)
    free = ids_without_label(study)
    assert free
    dora = server.annotator("dora")
    dora.go_to(free[0])
    seen = wait_until(lambda: dora.current()["data"].get("predictions"), "the prelabels")
    server.stop()
    server = potato_server(study)
    dora = server.annotator("dora", new=False)
    dora.go_to(free[0])
    assert dora.current()["data"].get("predictions") == seen
