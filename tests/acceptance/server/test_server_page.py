"""The page without its script: which runs the table shows, starting a run again, and files that are given out."""

from __future__ import annotations

import json
import re

import pytest


@pytest.fixture
def site(server):
    return server()


def shown(text):
    """The run ids of the table, in its order."""
    return re.findall(r'id="compare-([\w-]+)"', text)


def fill(study, count, trainer="old", backend="local"):
    """So many runs that were cancelled long ago; their ids."""
    runs = [f"{trainer}-{n:04d}" for n in range(count)]
    with study.store().transaction() as db:  # a run that is open for an instant would have a supervisor look after it
        db.executemany(
            "INSERT INTO runs (run_id, trainer, schemas, params, backend, config, trigger, started_by, created, state,"
            " ended, settled, facts) VALUES (?, ?, '[\"sentiment\"]', '{}', ?, 'config.yaml', 'cli', 'ada', 1,"
            " 'cancelled', 1, 1, '{}')", [(run, trainer, backend) for run in runs])
    return runs


def test_more_and_more_runs_until_all_that_a_page_can_show(site, study):
    runs = fill(study, 1003)
    seen, path = [], ""
    for _ in range(3):
        text = site.get(path).text
        seen.append(len(shown(text)))
        following = re.search(r'<a href="(/admin/training\?[^"#]+)#runs-title">More runs', text)
        path = following[1].replace("&amp;", "&") if following else None
    assert (seen, path) == ([25, 200, 1000], None)
    assert shown(text)[0] == runs[-1]
    assert "These are the first 1,000" in text


def test_the_table_with_some_words_and_by_score(site, study):
    scores = dict(zip(fill(study, 4, trainer="good"), (0.5, 0.9, None, 0.7), strict=True))
    fill(study, 30, trainer="bad", backend="station")
    for run, score in scores.items():
        if score is not None:
            study.store().note(run, result={"metrics": {"sentiment": {"test": {"macro_f1": score, "n": 9}}}})
    best = ["good-0001", "good-0003", "good-0000"]
    assert shown(site.get("?by=score").text)[:3] == best
    assert shown(site.get("?q=GOOD+local&by=score").text) == [*best, "good-0002"]
    text = site.get("?q=station").text
    assert len(shown(text)) == 25
    assert "?limit=200&amp;q=station#runs-title" in text
    assert 'data-live="/admin/training/live?limit=25&amp;q=station"' in text
    assert shown(site.get("live?limit=25&q=good").json["regions"]["runs"]) == sorted(scores, reverse=True)
    assert "No run has that." in site.get("?q=nothing").text
    assert site.get("?q=%22%3E%3Cscript%3E%ff").status == 200


def test_a_run_is_started_again_by_the_form(site, study):
    run = site.start_run("test-curved", steps=3)
    study.ended(run)
    page = site.get(f"runs/{run}").text
    assert f'href="/admin/training?again={run}#start-title"' in page
    text = site.get(f"?again={run}").text
    assert f'>{run}</a> was; change what you like' in text
    assert re.search(r'<option value="test-curved" selected', text)
    assert re.search(r'name="p.test-curved.steps" value="3"', text)
    assert text.count("checked") == 1
    assert "was; change" not in site.get("?again=nothing").text


def test_the_predictions_are_given_out(site, study):
    run = site.start_run()
    study.ended(run)
    answer = site.get(f"runs/{run}/predictions.jsonl")
    assert f"{run}-predictions.jsonl" in answer.headers["Content-Disposition"]
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert rows and {"instance_id", "schema_name", "payload", "confidence"} <= rows[0].keys()
    assert f'href="/admin/training/runs/{run}/predictions.jsonl"' in site.get(f"runs/{run}").text
    assert site.get(f"runs/{run}/predictions.jsonl", key=None).status == 303
    path = study.places.run_dir(run) / "predictions.jsonl"
    path.unlink()
    path.symlink_to(study.config)
    assert site.get(f"runs/{run}/predictions.jsonl").status == 404


def test_a_run_that_waits_for_its_agent_is_not_said_to_be_about_to_start(server, study):
    """Nor is an agent that nobody has seen said to be ready."""
    study.configure(backends={"lab": {"type": "agent"}})
    site = server()
    assert study.potato("training", "register", "lab").returncode == 0
    checked = site.post("check", form={"trainer": "test-quick", "schemas": "sentiment", "backend": "lab"})
    assert "lab: a run there waits until its agent asks" in checked.text
    asked = {"trainer": "test-quick", "schemas": ["sentiment"], "backend": "lab"}
    run = site.post("api/runs", asked).json["run_id"]
    waits = "No agent has asked for work for lab"
    study.wait_until(lambda: waits in study.run(run).step, "the reason why it waits")
    now = site.get("").text.partition('id="region-now"')[2].partition('id="region-auto"')[0]
    assert waits in now and "Nothing is running." in now and "about to start" not in now
    assert site.post(f"api/runs/{run}/cancel").status == 200
    study.ended(run)
