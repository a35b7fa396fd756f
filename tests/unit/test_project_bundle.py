"""The bundle: what is in it, that it is the same bytes each time, and what it refuses to be."""

import hashlib
import json
import os
import stat
import subprocess
import tarfile
import zlib
from importlib.resources import files

import jsonschema
import pytest
from potato_training.project import build_bundle, summary
from potato_training.project.bundle import trainable
from potato_training.schema.config import load_or_raise
from potato_training.schema.errors import UserError

RADIO = {"annotation_type": "radio", "name": "sentiment", "description": "?", "labels": ["positive", "negative"]}
TOPICS = {
    "annotation_type": "multiselect", "name": "topics", "description": "?", "labels": ["price", "speed, weight"]
}
NOTE = {"annotation_type": "text", "name": "note", "description": "?"}
LIKERT = {"annotation_type": "likert", "name": "force", "description": "?", "size": 5}
MEMBERS = ["manifest.json", "train.jsonl", "val.jsonl", "test.jsonl", "unlabeled.jsonl"]


def opened(path):
    """The members of an archive: {name: text}."""
    with tarfile.open(path) as tar:
        return {info.name: tar.extractfile(info).read().decode() for info in tar.getmembers()}


def rows(members, *parts):
    return [json.loads(line) for part in parts for line in members[f"{part}.jsonl"].splitlines()]


def alternating(n, start=1):
    return {f"i{k}": {"sentiment": ("positive", "negative")[k % 2]} for k in range(start, n + 1)}


@pytest.fixture
def made(new_project, tmp_path):
    """``made(items, answers, schemas, ...)``: (bundle, members) of such a project."""

    def make(items, answers, schemas=("sentiment",), check=lambda: None, **options):
        config = new_project(items, answers, **options)
        bundle = build_bundle(config, schemas, tmp_path / "bundle.tar.gz", check=check)
        return bundle, opened(tmp_path / "bundle.tar.gz")

    return make


def test_members_rows_and_manifest(made):
    answers = {"ann": alternating(40), "bob": alternating(20)}
    bundle, members = made(60, answers)
    assert list(members) == MEMBERS
    assert json.loads(members["manifest.json"]) == bundle.manifest
    labelled = rows(members, "train", "val", "test")
    assert {row["id"]: row["labels"] for row in labelled} == answers["ann"]
    unlabeled = rows(members, "unlabeled")
    assert unlabeled == [{"id": f"i{n}", "text": f"text number {n}", "labels": {}} for n in range(41, 61)]
    assert members["unlabeled.jsonl"].startswith('{"id":"i41","text":"text number 41","labels":{}}\n')
    for part, facts in bundle.manifest["splits"].items():
        text = members[facts["path"]]
        assert facts["n"] == text.count("\n")
        assert facts["sha256"] == hashlib.sha256(text.encode()).hexdigest()
        ids = [int(row["id"][1:]) for row in rows(members, part)]
        assert ids == sorted(ids), "items are in the order of the data files"


def test_the_manifest_says_what_the_labels_are_worth(made):
    answers = {"Ann Example": alternating(30), "bob@example.org": alternating(10)}
    answers["bob@example.org"]["i3"]["sentiment"] = "positive"
    bundle, members = made(40, answers, training={"split_seed": 7, "aggregation": "majority"})
    facts = bundle.manifest["aggregation"]["per_schema"]["sentiment"]
    assert bundle.manifest["aggregation"]["method"] == "majority"
    assert bundle.manifest["split_seed"] == 7
    assert (facts["items"], facts["annotations"], facts["annotators"]) == (30, 40, 2)
    assert (facts["shared_items"], facts["disagreements"], facts["ties"]) == (10, 1, 1)
    assert facts["agreement"] == 0.9 and sum(facts["label_counts"].values()) == 30
    assert sorted(facts["per_annotator"]) == ["a1", "a2"] and bundle.manifest["annotators"] == 2
    everything = "".join(members.values())
    assert "Ann" not in everything and "bob" not in everything


def test_the_manifest_keeps_to_its_schema(made):
    schema = json.loads(files("potato_training.schema").joinpath("bundle.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    bundle, _ = made(30, {"ann": {f"i{n}": {"sentiment": ("positive", "negative")[n % 2], "topics": "price"}
                                  if n % 3 else {"topics": ["price", "speed, weight"]} for n in range(1, 25)}},
                     ["sentiment", "topics"], schemes=(RADIO, TOPICS))
    jsonschema.validate(bundle.manifest, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**bundle.manifest, "surprise": 1}, schema)


def test_digests_change_with_content_and_only_then(new_project, tmp_path):
    config = new_project(40, {"ann": alternating(30)})
    first = build_bundle(config, ["sentiment"], tmp_path / "a")
    state = config.output_dir / "ann" / "user_state.json"
    text = state.read_text()
    state.write_text(text.replace("\n", " "))
    again = build_bundle(config, ["sentiment"], tmp_path / "b")
    assert (first.sha256, first.manifest["digest"]) == (again.sha256, again.manifest["digest"])
    state.write_text(text.replace('"name": "positive"', '"name": "negative"', 1))
    other = build_bundle(config, ["sentiment"], tmp_path / "c")
    for key in ("digest", "label_digest"):
        assert other.manifest[key] != first.manifest[key]
    assert other.sha256 != first.sha256


def test_the_label_digest_does_not_mind_the_order_of_items(new_project, write_project, tmp_path):
    items = [{"id": f"i{n}", "text": f"t{n}"} for n in range(1, 31)]
    digests = set()
    for name, order in (("a", items), ("b", items[::-1])):
        config = load_or_raise(write_project(tmp_path / name, order, {"ann": alternating(30)}))
        digests.add(build_bundle(config, ["sentiment"], tmp_path / f"{name}.gz").manifest["label_digest"])
    assert len(digests) == 1


def test_more_items_and_labels_move_nothing_to_another_split(new_project, write_project, tmp_path):
    def membership(name, items, answers):
        config = load_or_raise(write_project(tmp_path / name, items, answers))
        build_bundle(config, ["sentiment"], tmp_path / f"{name}.gz")
        members = opened(tmp_path / f"{name}.gz")
        return {row["id"]: part for part in ("train", "val", "test") for row in rows(members, part)}

    items = [{"id": f"i{n}", "text": f"t{n}"} for n in range(1, 91)]
    before = membership("a", items[:40], {"ann": alternating(40)})
    after = membership("b", items[::-1], {"ann": alternating(90), "bob": alternating(10)})
    assert len(before) == 40 and len(after) == 90
    assert {item: after[item] for item in before} == before


def test_the_tar_is_the_same_bytes_wherever_and_whenever(project, tmp_path):
    config = load_or_raise(project("multi-project") / "config.yaml")
    tars = []
    for n, umask in enumerate((0o022, 0o077, 0o000)):
        folder = tmp_path / f"run{n}"
        folder.mkdir()
        before = os.umask(umask)
        try:
            bundle = build_bundle(config, ["sentiment", "topics", "lang", "strength"], folder / "b.tar.gz")
        finally:
            os.umask(before)
        assert stat.S_IMODE((folder / "b.tar.gz").stat().st_mode) == 0o600
        assert [p.name for p in folder.iterdir()] == ["b.tar.gz"]
        assert bundle.size == (folder / "b.tar.gz").stat().st_size
        tar = zlib.decompress((folder / "b.tar.gz").read_bytes(), 31)
        assert hashlib.sha256(tar).hexdigest() == bundle.sha256
        tars.append(tar)
    assert tars[0] == tars[1] == tars[2]
    with tarfile.open(folder / "b.tar.gz") as tar:
        for info in tar.getmembers():
            assert info.isreg() and (info.mode, info.uid, info.gid, info.mtime) == (0o600, 0, 0, 0)
            assert (info.uname, info.gname) == ("", "")


def test_other_programs_read_the_archive(project, tmp_path):
    build_bundle(load_or_raise(project("review-project") / "config.yaml"), ["sentiment"], tmp_path / "b.tar.gz")
    listed = subprocess.run(["tar", "tzf", tmp_path / "b.tar.gz"], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == MEMBERS and listed.stderr == ""


def test_labels_of_the_shared_projects(project, tmp_path):
    config = load_or_raise(project("multi-project") / "config.yaml")
    bundle = build_bundle(config, ["sentiment", "topics", "strength", "lang"], tmp_path / "b.tar.gz")
    facts = bundle.manifest["aggregation"]["per_schema"]
    assert {name: one["annotations"] for name, one in facts.items()} == dict.fromkeys(facts, 81)
    row = next(r for r in rows(opened(tmp_path / "b.tar.gz"), "train", "val", "test") if r["id"] == "r008")
    assert row["labels"] == {
        "sentiment": "negative", "topics": ["quality", "delivery"], "strength": "3", "lang": "en"
    }


def test_a_multiselect_in_the_order_of_the_scheme(made):
    answers = {f"i{n}": {"topics": ["speed, weight", "price"] if n % 2 else ["price"]} for n in range(1, 31)}
    bundle, members = made(30, {"ann": answers}, ["topics"], schemes=(TOPICS,))
    assert all(row["labels"]["topics"] in (["price", "speed, weight"], ["price"])
               for row in rows(members, "train", "val", "test"))
    assert bundle.manifest["aggregation"]["per_schema"]["topics"]["label_counts"] == {
        "price": 30, "speed, weight": 15
    }


def test_an_item_with_a_label_for_one_scheme_only(made):
    answers = alternating(30)
    answers["i31"] = {"topics": ["price"]}
    answers["i1"]["topics"] = ["speed, weight"]
    answers["i2"]["topics"] = ["price"]
    answers |= {f"i{n}": {"topics": "price"} for n in range(32, 40)}
    answers |= {f"i{n}": {"topics": ["price", "speed, weight"]} for n in range(40, 50)}
    _, members = made(50, {"ann": answers}, ["sentiment", "topics"], schemes=(RADIO, TOPICS))
    labels = {row["id"]: row["labels"] for row in rows(members, "train", "val", "test")}
    assert labels["i31"] == {"topics": ["price"]} and labels["i3"] == {"sentiment": "negative"}
    assert labels["i1"] == {"sentiment": "negative", "topics": ["speed, weight"]}


def test_texts_of_all_kinds_survive(made):
    texts = ['"quoted"', "tab\tnew\nline", "żółw 🐢", "\u2028 separators \x85", "null \x00 char", "\\u0041"]
    items = [{"id": f"i{n}", "text": text} for n, text in enumerate(texts * 6, 1)]
    _, members = made(items, {"ann": alternating(30)})
    got = {}
    for part in ("train", "val", "test", "unlabeled"):
        for line in members[f"{part}.jsonl"].split("\n")[:-1]:
            row = json.loads(line)
            got[row["id"]] = row["text"]
    assert got == {item["id"]: item["text"] for item in items}


def test_half_a_character_is_replaced_and_said(made):
    items = [{"id": f"i{n}", "text": f"t{n}"} for n in range(1, 31)] + [{"id": "odd", "text": "x\ud83dy"}]
    bundle, members = made(items, {"ann": alternating(30)})
    assert rows(members, "unlabeled") == [{"id": "odd", "text": "x\ufffdy", "labels": {}}]
    assert bundle.warnings == ("1 text held half a character, replaced by U+FFFD",)


def test_an_id_with_half_a_character_is_refused(made):
    items = [{"id": f"i{n}", "text": f"t{n}"} for n in range(1, 31)] + [{"id": "x\ud83d", "text": "t"}]
    with pytest.raises(UserError, match="half a character"):
        made(items, {"ann": alternating(30)})


def test_answers_to_items_that_have_gone_do_not_count(made):
    bundle, members = made(30, {"ann": alternating(50), "bob": {"i99": {"sentiment": "positive"}}})
    assert len(rows(members, "train", "val", "test")) == 30
    assert bundle.manifest["aggregation"]["per_schema"]["sentiment"]["annotations"] == 30
    assert bundle.manifest["annotators"] == 1
    assert bundle.warnings == ("21 annotated items left out: not in the data files (any more)",)


def test_labels_that_only_confirm_a_prelabel_are_told_apart(made, tmp_path):
    bundle, _ = made(30, {"ann": alternating(30)})
    state_file = tmp_path / "made/annotation_output/ann/user_state.json"
    state = json.loads(state_file.read_text())
    state["instance_id_to_behavioral_data"] = {
        f"i{n}": {"pre_annotation_seeds": {"sentiment": {"label": "positive", "confidence": 0.8}}}
        for n in range(1, 5)
    }
    state_file.write_text(json.dumps(state))
    again = build_bundle(load_or_raise(tmp_path / "made/config.yaml"), ["sentiment"], tmp_path / "b")
    assert bundle.manifest["pre_annotation_seeds"] == {"sentiment": 0}
    assert again.manifest["pre_annotation_seeds"] == {"sentiment": 2}, "i2 and i4 are positive"
    config = tmp_path / "made/config.yaml"
    written = json.loads(config.read_text())
    written["model_training"]["confirmed_prelabels"] = "leave_out"
    config.write_text(json.dumps(written))
    without = build_bundle(load_or_raise(config), ["sentiment"], tmp_path / "c")
    members = opened(tmp_path / "c")
    assert without.manifest["pre_annotation_seeds"] == {"sentiment": 2}
    assert {row["id"] for row in rows(members, "unlabeled")} == {"i2", "i4"}
    assert len(rows(members, "train", "val", "test")) == 28
    assert without.manifest["aggregation"]["per_schema"]["sentiment"]["annotations"] == 28
    assert without.warnings == (
        "sentiment: 2 answers left out: the same as the prelabel that was shown (confirmed_prelabels)",
    )


def test_answers_that_all_confirm_prelabels_teach_nothing(new_project, tmp_path):
    config = new_project(9, {"ann": alternating(9)}, training={"confirmed_prelabels": "leave_out"})
    state_file = config.output_dir / "ann/user_state.json"
    state = json.loads(state_file.read_text())
    seeds = {item: {"pre_annotation_seeds": said} for item, said in alternating(9).items()}
    state_file.write_text(json.dumps(state | {"instance_id_to_behavioral_data": seeds}))
    with pytest.raises(UserError, match=r"sentiment: all 9 answers only confirm a prelabel, and model_training\.conf"):
        build_bundle(config, ["sentiment"], tmp_path / "b")


SAME = {f"i{n}": {"sentiment": "positive"} for n in range(1, 13)}


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, r"sentiment: no labels in annotation_output yet \(0 annotators\)"),
        ({"ann": {}}, r"sentiment: no labels in annotation_output yet \(1 annotator\)"),
        ({"ann": {"i1": {"topics": "price"}}}, r"sentiment: no labels in annotation_output yet"),
        ({"ann": SAME}, 'sentiment: all 12 annotations are "positive"; at least 2 labels are needed'),
        ({"ann": {"zz": {"sentiment": "positive"}}}, "sentiment: every annotated item is missing from the data"),
    ],
)
def test_nothing_to_learn_from(made, tmp_path, answers, message):
    with pytest.raises(UserError, match=message):
        made(20, answers, schemes=(RADIO, TOPICS))
    assert [p.name for p in tmp_path.iterdir()] == ["made"], "nothing is left behind"


def test_one_class_only_in_a_multiselect(made):
    answers = {f"i{n}": {"topics": ["price", "speed, weight"]} for n in range(1, 9)}
    with pytest.raises(UserError, match='topics: all 8 annotations are "price, speed, weight"; at least 2'):
        made(20, {"ann": answers}, ["topics"], schemes=(TOPICS,))


def test_one_class_left_once_annotators_are_joined(made):
    wrong = {"bob": {"i1": {"sentiment": "negative"}}}
    with pytest.raises(UserError, match='all 12 items are "positive" once annotators are joined'):
        made(20, {"ann": SAME, "cat": SAME, **wrong})


def test_an_empty_train_split(made):
    with pytest.raises(UserError, match="none of the 20 labelled items falls into the train split"):
        made(20, {"ann": alternating(20)}, training={"splits": {"train": 0.0001, "val": 0.5, "test": 0.4999}})


def test_one_class_only_in_the_train_split(made):
    from potato_training.project.splits import split_of

    shares = {"train": 0.7, "val": 0.15, "test": 0.15}
    answers = {f"i{n}": {"sentiment": "positive" if split_of(f"i{n}", 0, shares) == "train" else "negative"}
               for n in range(1, 21)}
    with pytest.raises(UserError, match=r'sentiment: all \d+ items of the train split are "positive"'):
        made(20, {"ann": answers})


def test_one_bad_scheme_of_several_is_named(made):
    answers = alternating(20) | {"i1": {"sentiment": "positive", "topics": "price"}}
    with pytest.raises(UserError, match=r'^topics: all 1 annotations are "price"'):
        made(20, {"ann": answers}, ["sentiment", "topics"], schemes=(RADIO, TOPICS))


def test_a_scheme_that_nobody_has_answered_yet_names_the_others(made):
    with pytest.raises(UserError, match=r"^topics: no labels in annotation_output yet") as caught:
        made(20, {"ann": {f"i{n}": {"sentiment": "positive"} for n in range(9)}}, ["sentiment", "topics"],
             schemes=(RADIO, TOPICS))
    assert caught.value.hint == "to train on the schemes that have labels: --schemas sentiment"


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        (["sentimnt"], 'no annotation scheme is called "sentimnt"; did you mean "sentiment"?', "sentiment, topics"),
        (["sentiment", "note"], "note: a text scheme cannot be trained", "can be trained: sentiment, topics"),
        ([], "no annotation scheme to train on was named", "sentiment"),
    ],
)
def test_schemes_that_cannot_be_trained(new_project, names, message, hint):
    config = new_project(1, schemes=(RADIO, TOPICS, NOTE))
    with pytest.raises(UserError) as caught:
        trainable(config, names)
    assert caught.value.message == message and hint in caught.value.hint


def test_a_scheme_named_twice_is_trained_once(new_project):
    config = new_project(1, schemes=(LIKERT, RADIO))
    assert [s.name for s in trainable(config, ["force", "sentiment", "force"])] == ["force", "sentiment"]
    assert config.scheme("force").labels == ("1", "2", "3", "4", "5")


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", [1, 3, 8])
def test_stopping_leaves_nothing_behind(made, tmp_path, after):
    calls = []

    def check():
        calls.append(1)
        if len(calls) == after:
            raise Stop

    with pytest.raises(Stop):
        made(5000, {"ann": alternating(2500)}, check=check)
    assert [p.name for p in tmp_path.iterdir()] == ["made"]


def test_check_is_called_at_least_every_thousand_items(made):
    calls = []
    made(5000, {"ann": alternating(3000)}, check=lambda: calls.append(1))
    assert len(calls) >= 3 + 5 + 3


def test_an_older_archive_stays_until_the_new_one_is_whole(made, tmp_path):
    (tmp_path / "bundle.tar.gz").write_text("old")
    with pytest.raises(UserError):
        made(20, {"ann": SAME})
    assert (tmp_path / "bundle.tar.gz").read_text() == "old"


def test_progress_goes_through_its_phases(new_project, tmp_path):
    told = []
    config = new_project(2500, {"ann": alternating(30)})
    build_bundle(config, ["sentiment"], tmp_path / "b", on_progress=lambda *step: told.append(step))
    assert told == [("annotations", 0), ("items", 1000), ("items", 2000), ("packing", 2500)]


def test_items_without_a_text_are_left_out_with_a_word(new_project, tmp_path):
    config = new_project(60, {"ann": alternating(41)})
    path = config.data_files[0]
    rows_there = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows_there:
        if row["id"] in ("i40", "i41", "i60"):
            row["text"] = " "
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_there))
    bundle = build_bundle(config, ["sentiment"], tmp_path / "bundle.tar.gz")
    found = {row["id"] for row in rows(opened(tmp_path / "bundle.tar.gz"), "train", "val", "test", "unlabeled")}
    assert found == {f"i{n}" for n in range(1, 60)} - {"i40", "i41"}
    assert bundle.warnings == ("3 items have no text, and are left out: i40, i41, i60",)
    assert bundle.manifest["items_without_text"] == 3
    assert bundle.manifest["aggregation"]["per_schema"]["sentiment"]["items"] == 39
    told = summary(config)
    assert (told["items"], told["annotated"], told["warnings"]) == (57, 39, list(bundle.warnings))
