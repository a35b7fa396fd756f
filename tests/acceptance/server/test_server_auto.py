"""Automatic runs: started after enough new annotations, and a reason whenever none is."""

from __future__ import annotations

import json

import pytest


def annotate(study, count, who="newcomer", label="positive"):
    """Somebody labels the first ``count`` items that the data file has."""
    items = json.loads((study.root / "data" / "reviews.json").read_text())[:count]
    state = {"user_id": who, "origin": {}, "instance_id_to_label_to_value": {
        item["id"]: [[{"schema": "sentiment", "name": label}, label]] for item in items}}
    folder = study.root / "annotation_output" / who
    folder.mkdir(exist_ok=True)
    (folder / "user_state.json.tmp").write_text(json.dumps(state))
    (folder / "user_state.json.tmp").replace(folder / "user_state.json")


@pytest.fixture
def words(study):
    """``words(site, part)``: waits until the status says that of automatic runs; all that it says."""

    def wait(site, part):
        def told():
            auto = site.get("api/status").json["auto_retrain"]
            return auto if part in auto["words"] else None

        found = study.wait_until(told, part)
        assert found["words"] in site.get("").text.replace("&#39;", "'")
        return found

    return wait


def auto(study, **keys):
    study.configure(auto_retrain={"enabled": True, "trainer": "test-quick", "update_frequency": 10,
                                  "min_interval_s": 0, **keys})


def test_off_unless_asked_for(server, words):
    site = server()
    assert words(site, "off (model_training.auto_retrain.enabled)")["enabled"] is False


def test_enough_new_annotations_start_a_run_and_a_restart_does_not(study, server, words):
    process, first = study.train("test-quick")
    study.finish(process)
    auto(study)
    site = server()
    assert words(site, "waiting: 0 of 10 new annotations")["new_annotations"] == 0
    annotate(study, 9)
    assert words(site, "waiting: 9 of 10")["new_annotations"] == 9
    assert len(study.runs()) == 1
    annotate(study, 12)
    words(site, "0 of 10 new annotations")
    run = study.ended(study.runs()[0].run_id)
    assert (run.trigger, run.state) == ("auto", "succeeded")
    assert run.run_id != first
    site.stop()
    again = server()
    words(again, "waiting: 0 of 10")
    assert len(study.runs()) == 2


def test_the_first_run_of_a_project(study, server):
    auto(study)
    server()
    run = study.wait_until(study.runs, "a run")[0]
    assert study.ended(run.run_id).trigger == "auto"


def test_why_none_was_started(study, server, words):
    process, _ = study.train("test-quick")
    study.finish(process)
    auto(study, min_interval_s=3600)
    site = server()
    annotate(study, 20)
    assert 3000 < words(site, "of min_interval_s are left")["seconds_left"] <= 3600
    auto(study)
    study.configure(auto_retrain={"enabled": True, "trainer": "sklearn-text", "update_frequency": 10,
                                  "min_interval_s": 0, "backend": "lab"},
                    backends={"lab": {"type": "agent"}}, enabled=False)
    words(site, "model_training.enabled is false")
    good = study.config.read_text()
    study.config.write_text(good.replace("enabled: false", "enabled: perhaps"))
    words(site, "model_training.enabled")
    assert len(study.runs()) == 1


def test_a_run_that_goes_on_is_waited_for(study, server, words):
    auto(study, min_interval_s=3600)
    study.configure(auto_retrain={"enabled": True, "trainer": "test-quick", "update_frequency": 1000})
    site = server()
    run = site.start_run("test-slow", steps=600)
    study.reaches(run, "running")
    auto(study)
    annotate(study, 20)
    words(site, f"run {run} has not ended")
    site.post(f"api/runs/{run}/cancel")
    study.wait_until(lambda: len(study.runs()) == 2, "the automatic run")
    assert study.runs()[0].trigger == "auto"


def test_one_server_watches_and_each_says_why_none_was_started(study, server):
    """Whichever worker of a server answers, the page says the same; a watcher that dies is followed by the other."""
    process, _ = study.train("test-quick")
    study.finish(process)
    auto(study)
    sites = [server(), server()]

    def all_say(part):
        def told():
            texts = {site.get("api/status").json["auto_retrain"]["words"] for site in sites}
            return len(texts) == 1 and part in texts.pop()

        study.wait_until(told, part)

    all_say("waiting: 0 of 10 new annotations")
    annotate(study, 4)
    all_say("waiting: 4 of 10 new annotations")
    sites.pop(0).process.kill()
    annotate(study, 5)
    all_say("waiting: 5 of 10 new annotations")
    annotate(study, 12)
    study.wait_until(lambda: len(study.runs()) == 2, "the automatic run")
    assert study.ended(study.runs()[0].run_id).trigger == "auto"
