"""Write-back: which predictions become prelabels, in what shape, and what the report counts."""

import json
import stat
import threading

import pytest
from potato_training.project import publish, retract, summary

RADIO = {"annotation_type": "radio", "name": "sentiment", "description": "?", "labels": ["positive", "negative"]}
TOPICS = {"annotation_type": "multiselect", "name": "topics", "description": "?", "labels": ["price", "speed"]}
SELECT = {"annotation_type": "select", "name": "lang", "description": "?", "labels": ["en", "de"]}
SIZED = {"annotation_type": "likert", "name": "force", "description": "?", "size": 3}
NAMED = {"annotation_type": "likert", "name": "mood", "description": "?", "labels": ["low", "high"]}
NOTE = {"annotation_type": "text", "name": "note", "description": "?"}
ALL = (RADIO, TOPICS, SELECT, SIZED, NAMED, NOTE)
REASONS = {
    "invalid", "schema_not_enabled", "unknown_item", "already_labelled", "shape_not_shown", "below_confidence"
}


def guess(item, payload="positive", confidence=0.9, schema="sentiment", **more):
    return {"instance_id": item, "schema_name": schema, "payload": payload, "confidence": confidence,
            "split": "unlabeled", "scores": {}, **more}


@pytest.fixture
def publishing(new_project, tmp_path):
    """``publishing([prediction, ...])``: (report, rows of prelabels.jsonl); items i1 to i9, i1 labelled."""
    destination = tmp_path / "made" / "training" / "prelabels.jsonl"
    config = None

    def run(predictions, run_id="r1", schemas=("sentiment",), **rules):
        nonlocal config
        if config is None:
            rules = {"schemas": list(schemas), "include_unlabeled": True, **rules}
            config = new_project(9, {"ann": {"i1": {"sentiment": "positive"}}}, schemes=ALL,
                                 training={"writeback": rules})
        path = tmp_path / "predictions.jsonl"
        path.write_text("".join(x if isinstance(x, str) else json.dumps(x) + "\n" for x in predictions))
        report = publish(config, run_id=run_id, predictions=path, destination=destination)
        return report, [json.loads(line) for line in destination.read_text().splitlines()]

    run.destination = destination
    return run


def reasons(report):
    return {name: report[name] for name in REASONS if report[name]}


def test_a_row_of_prelabels(publishing):
    report, rows = publishing([guess("i2", confidence=0.75)])
    assert rows == [{"instance_id": "i2", "schema": "sentiment", "payload": "positive", "confidence": 0.75,
                     "run_id": "r1"}]
    assert (report["read"], report["published"], reasons(report)) == (1, 1, {})
    assert report["schemas"] == {"sentiment": 1} and report["notes"] == []
    report, _ = publishing([guess("i2")], schemas=("sentiment", "lang"))
    assert report["notes"] == []  # a scheme that this run did not predict is no news of it
    assert stat.S_IMODE(publishing.destination.stat().st_mode) == 0o600
    assert stat.S_IMODE(publishing.destination.parent.stat().st_mode) & 0o077 == 0


def test_each_reason_is_counted(publishing):
    report, rows = publishing(
        [
            guess("i1"), guess("i2", confidence=0.59), guess("i3", confidence=0.6), guess("zz"),
            guess("i4", ["price"], schema="topics"), guess("i5", "en", schema="lang"),
            guess("i6", "2", schema="force"), guess("i7", "martian"), "{half", "[]\n",
        ],
        schemas=("sentiment", "lang", "force"), min_confidence=0.6,
    )
    assert [row["instance_id"] for row in rows] == ["i3"]
    assert reasons(report) == {
        "already_labelled": 1, "below_confidence": 1, "unknown_item": 1, "schema_not_enabled": 1,
        "shape_not_shown": 2, "invalid": 2,
    }
    assert report["read"] == report["published"] + sum(report[name] for name in REASONS)
    assert report["notes"] == [
        "lang: Potato's page shows no prelabels of a select scheme",
        "force: Potato's page shows no prelabels of a likert scheme with a size",
    ]


@pytest.mark.parametrize(
    ("schema", "payload"), [("topics", ["price", "speed"]), ("topics", ["speed"]), ("mood", "high")]
)
def test_shapes_that_the_page_shows(publishing, schema, payload):
    _, rows = publishing([guess("i2", payload, schema=schema)], schemas=("topics", "mood"))
    assert [row["payload"] for row in rows] == [payload]


@pytest.mark.parametrize(
    "change",
    [
        {"instance_id": 5}, {"instance_id": None}, {"schema_name": "other"}, {"schema_name": None},
        {"schema_name": ["sentiment"]}, {"payload": "Positive"}, {"payload": ["positive"]}, {"payload": None},
        {"payload": {"label": "positive"}}, {"confidence": None}, {"confidence": "0.9"}, {"confidence": True},
        {"confidence": float("nan")}, {"confidence": 1.5}, {"confidence": -0.1},
        {"schema_name": "topics", "payload": "price"}, {"schema_name": "topics", "payload": ["price", "x"]},
        {"schema_name": "topics", "payload": ["price", 5]}, {"schema_name": "note", "payload": "text"},
    ],
)
def test_what_another_machine_sends_is_not_taken_on_trust(publishing, change):
    report, rows = publishing([guess("i2") | change], schemas=("sentiment", "topics"))
    assert rows == [] and reasons(report) == {"invalid": 1}


def test_items_labelled_in_another_scheme_get_nothing(publishing):
    report, rows = publishing([guess("i1", "high", schema="mood")], schemas=("mood",))
    assert rows == [] and reasons(report) == {"already_labelled": 1}


def test_a_later_run_takes_the_place_of_an_earlier_one_scheme_by_scheme(publishing):
    first = [guess("i2"), guess("i3"), guess("i4", "high", schema="mood")]
    publishing(first, schemas=("sentiment", "mood"), min_confidence=0.6)
    report, rows = publishing([guess("i3", "negative"), guess("i5", confidence=0.1)], run_id="r2")
    assert report["replaced"] == 2
    assert {(row["instance_id"], row["schema"], row["payload"], row["run_id"]) for row in rows} == {
        ("i3", "sentiment", "negative", "r2"), ("i4", "mood", "high", "r1"),
    }


def test_publishing_again_changes_nothing(publishing):
    _, first = publishing([guess("i2"), guess("i3")])
    report, second = publishing([guess("i2"), guess("i3")])
    assert first == second and report["replaced"] == 2


def test_retracting_a_run(publishing):
    publishing([guess("i2"), guess("i4", "high", schema="mood")], schemas=("sentiment", "mood"))
    publishing([guess("i3")], run_id="r2")
    assert retract(publishing.destination, "r1") == 1
    rows = [json.loads(line) for line in publishing.destination.read_text().splitlines()]
    assert [(row["instance_id"], row["run_id"]) for row in rows] == [("i3", "r2")]
    assert retract(publishing.destination, "r1") == 0
    assert retract(publishing.destination, "r2") == 1 and publishing.destination.read_text() == ""
    assert stat.S_IMODE(publishing.destination.stat().st_mode) == 0o600


def test_retracting_where_nothing_was_published(tmp_path):
    assert retract(tmp_path / "prelabels.jsonl", "r1") == 0
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_line_of_the_old_file_does_not_stop_a_new_one(publishing):
    publishing.destination.parent.mkdir(parents=True)
    publishing.destination.write_text('{"half\n7\n{"other": 1}\n')
    _, rows = publishing([guess("i2")])
    assert len(rows) == 1


def test_with_unlabeled_off_a_note_says_why_nothing_is_published(publishing):
    report, rows = publishing([guess("i1")], include_unlabeled=False)
    assert rows == [] and "include_unlabeled is off" in report["notes"][0]
    assert "nothing to publish" in report["notes"][0]


def test_without_schemas_a_note_says_so_and_nothing_is_read(publishing):
    report, rows = publishing([guess("i2")], schemas=())
    assert rows == [] and reasons(report) == {"schema_not_enabled": 1}
    assert report["notes"] == ["model_training.writeback.schemas names no scheme: nothing is published"]


def test_stopping_leaves_the_old_file(publishing, tmp_path, new_project):
    publishing([guess("i2")])
    before = publishing.destination.read_text()

    class Stop(Exception):
        pass

    def stop():
        raise Stop

    config = load(tmp_path)
    with pytest.raises(Stop):
        publish(config, run_id="r2", predictions=tmp_path / "predictions.jsonl",
                destination=publishing.destination, check=stop)
    assert publishing.destination.read_text() == before
    assert not [p for p in publishing.destination.parent.iterdir() if p.name.endswith(".tmp")]


def load(tmp_path):
    from potato_training.schema.config import load_or_raise

    return load_or_raise(tmp_path / "made" / "config.yaml")


def test_two_who_write_at_once_lose_nothing(publishing, tmp_path):
    publishing([guess(f"i{n}", "high", schema="mood") for n in range(2, 9)], schemas=("sentiment", "mood"))
    config = load(tmp_path)
    path = tmp_path / "other.jsonl"
    path.write_text("".join(json.dumps(guess(f"i{n}")) + "\n" for n in range(2, 9)))
    steps = [
        lambda: publish(config, run_id="r2", predictions=path, destination=publishing.destination),
        lambda: retract(publishing.destination, "nobody"),
    ]
    threads = [threading.Thread(target=step) for step in steps * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [json.loads(line) for line in publishing.destination.read_text().splitlines()]
    assert sorted((row["schema"], row["run_id"]) for row in rows) == [("mood", "r1")] * 7 + [("sentiment", "r2")] * 7


def test_the_summary_of_a_project(project):
    from potato_training.schema.config import load_or_raise

    found = summary(load_or_raise(project("multi-project") / "config.yaml"))
    assert (found["items"], found["annotated"], found["annotators"], found["annotations"]) == (60, 40, 3, 324)
    assert found["schemes"]["topics"]["labels"] == {"price": 29, "quality": 26, "delivery": 53}
    assert found["schemes"]["strength"]["annotations"] == 81 and found["schemes"]["strength"]["items"] == 40
    assert found["schemes"]["note"] == {"annotation_type": "text", "kind": None}
    assert found["warnings"] == [] and found["machine_annotators"] == 0


def test_the_summary_says_how_far_people_agree_and_who_does_not(new_project):
    alone = {"annotation_type": "multiselect", "name": "unclear", "description": "?", "labels": ["unclear"]}
    right = {f"i{n}": {"sentiment": "positive" if n % 2 else "negative", "unclear": "unclear"} for n in range(1, 30)}
    wrong = {f"i{n}": {"sentiment": "positive"} for n in range(1, 30)}
    config = new_project(40, {"ann": right, "bob": right, "careless": wrong}, schemes=(RADIO, alone, NOTE))
    told = summary(config, joined=True)["schemes"]
    one = told["sentiment"]
    assert (one["shared_items"], one["disagreements"], one["ties"]) == (29, 14, 0)
    assert list(one["people"]) == ["ann", "bob", "careless"]
    assert one["people"]["ann"]["with_consensus"] > 0.9 > 0.7 > one["people"]["careless"]["with_consensus"]
    assert 0 < one["alpha"] < one["agreement"] < 1
    assert told["unclear"]["people"]["ann"]["annotations"] == 29
    assert "people" not in told["note"]
    assert "people" not in summary(config)["schemes"]["sentiment"]


def test_the_summary_leaves_out_items_that_have_gone(new_project):
    config = new_project(3, {"ann": {"i1": {"sentiment": "positive"}}, "bob": {"i9": {"sentiment": "positive"}}})
    found = summary(config)
    assert (found["items"], found["annotated"], found["annotators"], found["annotations"]) == (3, 1, 1, 1)
