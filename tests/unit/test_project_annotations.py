"""What is read from annotation_output: Potato's encodings, odd files, machines, doubtful answers."""

import json

import pytest
from potato_training.project.annotations import labelled_items, read_annotations
from potato_training.project.states import WHOLE_BYTES, open_state, seeded, triples
from potato_training.schema.errors import UserError

RADIO = {"annotation_type": "radio", "name": "sentiment", "description": "?", "labels": ["positive", "negative"]}
MULTI = {"annotation_type": "multiselect", "name": "topics", "description": "?", "labels": ["price", "quality"]}
SELECT = {"annotation_type": "select", "name": "lang", "description": "?", "labels": ["en", "de"]}
LIKERT = {"annotation_type": "likert", "name": "force", "description": "?", "size": 5}
ALL = (RADIO, MULTI, SELECT, LIKERT)


def pair(schema, name, value=None):
    return [{"schema": schema, "name": name}, name if value is None else value]


@pytest.fixture
def reading(new_project):
    """``reading({annotator: state})``: the annotations of a project with these user_state.json files."""

    def read(states, schemes=ALL, **options):
        config = new_project(9, schemes=schemes, **options)
        for who, state in states.items():
            folder = config.output_dir / who
            folder.mkdir(parents=True)
            text = state if isinstance(state, (str, bytes)) else json.dumps(state, indent=2)
            (folder / "user_state.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_annotations(config, [s for s in config.schemes if s.kind])

    return read


def said(found, schema):
    """{item: [(annotator, (labels))]} for one scheme."""
    votes = found.votes[schema]
    labels = votes.scheme.labels
    return {
        item: [(found.people[a], tuple(labels[k] for k in votes.values[c])) for a, c in votes.pattern(node)]
        for item, number in found.items.items()
        if (node := votes.node(number))
    }


def state_of(labels, **more):
    return {"user_id": "x", "instance_id_to_label_to_value": labels, "origin": {}, **more}


def test_each_scheme_type_in_its_encoding(reading):
    found = reading({"ann": state_of({"i1": [
        pair("topics", "quality"), pair("lang", "select-one", "en"), pair("sentiment", "positive"),
        pair("topics", "price"), pair("force", "4"), pair("note", "text_box", "words"),
    ]})})
    assert said(found, "sentiment") == {"i1": [("ann", ("positive",))]}
    assert said(found, "topics") == {"i1": [("ann", ("price", "quality"))]}
    assert said(found, "lang") == {"i1": [("ann", ("en",))]}
    assert said(found, "force") == {"i1": [("ann", ("4",))]}


def test_the_older_mapping_form_reads_the_same(reading):
    old = {"i1": {"sentiment": {"positive": "positive", "negative": False}, "lang": {"select-one": "de"}}}
    found = reading({"ann": state_of(old)})
    assert said(found, "sentiment") == {"i1": [("ann", ("positive",))]}
    assert said(found, "lang") == {"i1": [("ann", ("de",))]}


@pytest.mark.parametrize("value", [False, None, "", "false", 0])
def test_falsy_values_are_not_set(reading, value):
    found = reading({"ann": state_of({"i1": [[{"schema": "sentiment", "name": "positive"}, value]]})})
    assert found.items == {}


TRUTH = {"annotation_type": "radio", "name": "true", "description": "?", "labels": ["true", "false"]}
TRUTHS = {**TRUTH, "annotation_type": "select", "name": "chosen"}


def test_a_label_that_is_called_false_is_a_label(reading, new_project):
    both = [pair("true", "true"), pair("true", "false")]
    states = {"ann": state_of({"i1": [pair("true", "false"), pair("chosen", "select-one", "false")], "i2": both}),
              "bob": state_of({"i1": {"true": {"true": "false", "false": "false"}}})}
    actions = [{"instance_id": "i2", "action_type": "add_label", "schema_name": "true", "label_name": label,
                "new_value": label} for label in ("true", "false")]
    found = reading(states, schemes=[TRUTH, TRUTHS])
    assert said(found, "true") == {"i1": [("ann", ("false",)), ("bob", ("false",))]}
    assert said(found, "chosen") == {"i1": [("ann", ("false",))]}
    config = new_project(9, schemes=[TRUTH, TRUTHS])
    (config.output_dir / "ann" / "annotation_history.jsonl").write_text("\n".join(map(json.dumps, actions)))
    assert said(read_annotations(config, config.schemes), "true")["i2"] == [("ann", ("false",))]
    assert labelled_items(config) == {"i1", "i2"}


@pytest.mark.parametrize("junk", [
    None, 5, "x", [], [1], [["a"]], [[1, 2]], [[{}, 1]], {"sentiment": 3}, [[{"schema": 1, "name": 2}, 3]],
])
def test_what_has_no_known_shape_is_passed_over(reading, junk):
    good = [pair("sentiment", "negative")]
    found = reading({"ann": state_of({"i1": junk, "i2": good})})
    assert said(found, "sentiment") == {"i2": [("ann", ("negative",))]}


def test_several_people_and_folder_names(reading):
    answer = state_of({"i1": [pair("sentiment", "positive")]})
    names = ["ann", "bob@example.org", "Dr. Carol Q", "żółw"]
    found = reading(dict.fromkeys(names, answer))
    assert sorted(found.people) == sorted(names)
    assert [who for who, _ in said(found, "sentiment")["i1"]] == sorted(names)


def test_side_folders_and_files_are_none_of_ours(reading, tmp_path):
    output = tmp_path / "made" / "annotation_output"
    (output / "pocket").mkdir(parents=True)
    (output / "pocket" / "device_visits.json").write_text("{}")
    (output / "potato.log").write_text("...")
    (output / "training" / "runs").mkdir(parents=True)
    found = reading({"ann": state_of({"i1": [pair("sentiment", "positive")]})})
    assert found.people == ["ann"] and found.warnings == []


def test_no_annotation_output_is_no_annotations(reading):
    assert reading({}).people == []


def test_a_tmp_file_beside_is_not_read(reading, tmp_path):
    folder = tmp_path / "made" / "annotation_output" / "other"
    folder.mkdir(parents=True)
    (folder / "user_state.json.tmp").write_text("{half")
    found = reading({"ann": state_of({"i1": [pair("sentiment", "positive")]})})
    assert found.people == ["ann"]


WHOLE = json.dumps(state_of({"i1": [pair("sentiment", "positive")]}, padding=["x" * 1000] * (WHOLE_BYTES // 900)))


@pytest.mark.parametrize("content", [
    "", "{", "[]", "null", '{"a": ', b'{"user_id": "\xe9"}', "[" * 100_000, WHOLE[:-1], WHOLE[: WHOLE_BYTES + 9],
    "[" + WHOLE + "]", b"\xe9" + WHOLE.encode(),
])
def test_a_damaged_state_is_one_line_that_names_it(reading, content):
    with pytest.raises(UserError, match=r"annotation_output/ann/user_state\.json: half-written or damaged") as caught:
        reading({"ann": content})
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("size", [1, WHOLE_BYTES])
def test_a_number_that_is_none_stops_nothing_in_states_of_any_size(reading, size):
    labels = {"i1": [pair("sentiment", "positive")]}
    found = reading({"ann": state_of(labels, flow_record={"seconds": float("nan"), "more": "x" * size})})
    assert said(found, "sentiment") == {"i1": [("ann", ("positive",))]}


def test_a_state_caught_in_the_middle_of_a_copy_is_read_again(tmp_path):
    path = tmp_path / "user_state.json"
    path.write_text('{"user_id": ')
    state = open_state(
        path, "user_state.json", pause=lambda: path.write_text('{"user_id": "x", "origin": {"kind": "llm"}}')
    )
    assert state.origin == {"kind": "llm"}


def test_a_state_that_has_gone_is_nobody(tmp_path):
    assert open_state(tmp_path / "user_state.json", "x") is None


def test_a_large_state_reads_as_a_small_one(reading):
    labels = {f"i{n}": [pair("sentiment", "positive" if n % 2 else "negative")] for n in range(30_000)}
    behaviour = {"i1": {"pre_annotation_seeds": {"sentiment": {"label": "positive", "confidence": 0.9}}}}
    state = state_of(labels, instance_id_to_behavioral_data=behaviour)
    assert len(json.dumps(state, indent=2)) > WHOLE_BYTES
    found = reading({"ann": state, "bot": {**state, "origin": {"kind": "llm", "id": "bot"}}})
    assert found.people == ["ann"] and found.machines == 1
    assert len(found.items) == 30_000
    assert said(found, "sentiment")["i7"] == [("ann", ("positive",))]
    assert list(found.votes["sentiment"].confirmed) == [found.items["i1"]]


@pytest.mark.parametrize(("origin", "counts"), [
    ({}, True), (None, True), ({"kind": "human"}, True), ({"kind": "tool"}, False),
    ({"kind": "llm", "model": "m"}, False),
    ({"kind": "martian"}, False), ("garbled", False), ({"kind": 5}, False),
])
def test_only_people_count(reading, origin, counts):
    state = {**state_of({"i1": [pair("sentiment", "positive")]}), "origin": origin}
    found = reading({"ann": state})
    assert (len(found.people), found.machines) == ((1, 0) if counts else (0, 1))
    known = counts or (isinstance(origin, dict) and origin.get("kind") in ("tool", "llm"))
    assert [("is not known" in w and "annotation_output/ann" in w) for w in found.warnings] == [True] * (not known)


def test_a_state_without_origin_is_a_person(reading):
    state = state_of({"i1": [pair("sentiment", "positive")]})
    del state["origin"]
    assert reading({"ann": state}).people == ["ann"]


def test_machines_declared_in_the_config_are_left_out(reading):
    answer = state_of({"i1": [pair("sentiment", "positive")]})
    found = reading(
        {"ann": answer, "bot": answer},
        machine_annotators={"enabled": True, "annotators": [{"id": "bot", "kind": "llm"}]},
    )
    assert found.people == ["ann"] and found.machines == 1


def test_labels_that_the_scheme_does_not_have_are_counted(reading):
    found = reading({"ann": state_of({
        "i1": [pair("sentiment", "neutral")], "i2": [pair("topics", "price"), pair("topics", "speed")],
        "i3": [pair("lang", "select-one", "fr")], "i4": [pair("sentiment", "Positive")],
    })})
    assert found.votes["sentiment"].unknown == {"neutral": 1, "Positive": 1}
    assert found.votes["lang"].unknown == {"fr": 1}
    assert said(found, "topics") == {"i2": [("ann", ("price",))]}
    assert list(found.items) == ["i2"]


def test_a_million_unknown_labels_do_not_fill_the_memory(reading):
    found = reading({"ann": state_of({f"i{n}": [pair("sentiment", f"x{n}")] for n in range(3000)})})
    unknown = found.votes["sentiment"].unknown
    assert sum(unknown.values()) == 3000 and len(unknown) <= 1001


def test_the_text_beside_a_choice_is_no_second_answer(reading):
    found = reading({"ann": state_of({"i1": [
        pair("sentiment", "positive"), pair("sentiment", "free_response", "because"),
    ]})})
    assert said(found, "sentiment") == {"i1": [("ann", ("positive",))]}


def change(label, at, action="select", schema="sentiment"):
    return {"schema_name": schema, "label_name": label, "timestamp": at, "action": action}


BOTH = {"i1": [pair("sentiment", "positive"), pair("sentiment", "negative")]}


def act(label, kind="add_label", item="i1", **more):
    return json.dumps({"instance_id": item, "action_type": kind, "schema_name": "sentiment",
                       "label_name": label, "new_value": label, **more})


@pytest.mark.parametrize(("history", "answer"), [
    ([act("negative"), act("positive")], "positive"),
    ([act("positive"), act("negative"), act("positive", "remove_label", new_value=None)], "negative"),
    ([act("positive"), act("negative"), "{half a li"], "negative"),
    (["", "[]", "7", act("negative"), act("positive", item="i2")], "negative"),
    ([act("positive"), act("positive", "remove_label", new_value=None)], None),
    ([act("neutral")], None),
    (None, None),
])
def test_of_two_answers_the_history_knows_the_last(new_project, history, answer):
    config = new_project(3, schemes=ALL)
    folder = config.output_dir / "ann"
    folder.mkdir(parents=True)
    (folder / "user_state.json").write_text(json.dumps(state_of(BOTH)))
    if history is not None:
        (folder / "annotation_history.jsonl").write_text("\n".join(history) + "\n")
    found = read_annotations(config, [config.scheme("sentiment")])
    assert said(found, "sentiment") == ({"i1": [("ann", (answer,))]} if answer else {})
    assert found.votes["sentiment"].unresolved == (answer is None)


@pytest.mark.parametrize(("changes", "answer"), [
    ([change("positive", 1.0), change("negative", 2.0)], "negative"),
    ([change("negative", 2.0), change("positive", 1.0)], "negative"),
    ([change("positive", "yesterday"), 5, change("x", 9.0), change("positive", 1, schema="topics")], None),
    ("none", None),
])
def test_without_a_history_the_changes_in_the_state_do(reading, changes, answer):
    behaviour = {"i1": {"annotation_changes": changes}, "i2": 7}
    found = reading({"ann": state_of(BOTH, instance_id_to_behavioral_data=behaviour)})
    assert said(found, "sentiment") == ({"i1": [("ann", (answer,))]} if answer else {})


def test_labels_that_only_confirm_a_prelabel_are_counted(reading):
    seeds = {
        "i1": {"pre_annotation_seeds": {"sentiment": {"label": "positive", "confidence": 0.7}}},
        "i2": {"pre_annotation_seeds": {"sentiment": "positive", "topics": ["price", "quality"]}},
        "i3": {"pre_annotation_seeds": {}}, "i4": None,
    }
    labels = {
        "i1": [pair("sentiment", "positive")],
        "i2": [pair("sentiment", "negative"), pair("topics", "quality"), pair("topics", "price")],
        "i3": [pair("sentiment", "positive")],
    }
    found = reading({"ann": state_of(labels, instance_id_to_behavioral_data=seeds)})
    assert list(found.votes["sentiment"].confirmed) == [found.items["i1"]]
    assert list(found.votes["topics"].confirmed) == [found.items["i2"]]


def test_annotations_in_a_database_are_refused(new_project):
    config = new_project(1, database={"type": "mysql", "host": "db", "database": "p", "username": "u"})
    with pytest.raises(UserError, match="kept in a MySQL database"):
        read_annotations(config, config.schemes)


def test_reading_can_be_stopped(new_project):
    class Stop(Exception):
        pass

    def stop():
        raise Stop

    config = new_project(1, {"ann": {"i1": {"sentiment": "positive"}}})
    with pytest.raises(Stop):
        read_annotations(config, config.schemes, check=stop)


def test_labelled_items_are_those_of_any_scheme_by_people(new_project):
    config = new_project(9, schemes=ALL)
    states = {
        "ann": state_of({"i1": [pair("sentiment", "positive")], "i2": [pair("note", "text_box", "x")], "i3": [],
                         "i4": [pair("sentiment", "positive", "false")]},
                        instance_id_to_span_to_value={"i5": [[{"schema": "ents"}, 1]], "i6": []}),
        "bot": {**state_of({"i7": [pair("sentiment", "positive")]}), "origin": {"kind": "llm"}},
    }
    for who, state in states.items():
        (config.output_dir / who).mkdir(parents=True)
        (config.output_dir / who / "user_state.json").write_text(json.dumps(state))
    assert labelled_items(config) == {"i1", "i2", "i5"}


def test_shapes_of_seeds_and_labels():
    assert seeded("a") == seeded({"label": "a"}) == seeded(["a"]) == seeded([{"label": "a"}]) == {"a"}
    assert seeded(None) == seeded(5) == seeded([]) == seeded({}) == set()
    assert triples([pair("s", "n", "v")]) == triples({"s": {"n": "v"}}) == [("s", "n", "v")]
