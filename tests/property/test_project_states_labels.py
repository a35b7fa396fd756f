"""Whatever stands in user_state.json and its history: answers of the scheme, counts, or one clear line."""

import json
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from potato_training.project import states
from potato_training.project.annotations import labelled_items, read_annotations
from potato_training.schema.config import load_or_raise
from potato_training.schema.errors import UserError

SCHEMES = (
    {"annotation_type": "radio", "name": "s", "description": "?", "labels": ["a", "b"]},
    {"annotation_type": "multiselect", "name": "m", "description": "?", "labels": ["a", "b"]},
    {"annotation_type": "select", "name": "l", "description": "?", "labels": ["a", "b"]},
)
words = st.sampled_from(["s", "m", "l", "a", "b", "c", "i1", "select-one", "label", "schema", "name", "false", ""])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
pairs = st.lists(
    st.tuples(st.fixed_dictionaries({"schema": words, "name": words | anything}), words | anything).map(list)
    | anything,
    max_size=4,
)
changes = st.lists(
    st.fixed_dictionaries({"schema_name": words | anything, "label_name": words | anything,
                           "timestamp": st.floats(0, 9) | anything, "action": st.just("select") | anything})
    | anything,
    max_size=4,
)
behaviour = st.fixed_dictionaries(
    {}, optional={"pre_annotation_seeds": st.dictionaries(words, anything) | anything, "annotation_changes": changes}
)
actions = st.fixed_dictionaries({
    "instance_id": words | anything, "schema_name": words | anything, "label_name": words | anything,
    "action_type": st.sampled_from(["add_label", "update_label", "remove_label"]) | anything,
    "new_value": words | anything,
})
stored = anything | st.fixed_dictionaries(
    {},
    optional={
        "instance_id_to_label_to_value": st.dictionaries(words, pairs | anything) | anything,
        "instance_id_to_behavioral_data": st.dictionaries(words, behaviour | anything) | anything,
        "instance_id_to_span_to_value": anything, "origin": anything, "user_id": anything,
    },
)


@given(stored, st.lists(actions | anything, max_size=4), st.booleans())
@settings(max_examples=200)
def test_no_state_breaks_the_reading(write_project, state, history, streamed):
    size = 0 if streamed else states.WHOLE_BYTES  # the same state through either reader
    with (
        mock.patch.object(states, "WHOLE_BYTES", size),
        mock.patch.object(states.time, "sleep"),
        tempfile.TemporaryDirectory() as name,
    ):
        config = load_or_raise(write_project(Path(name), 1, {}, schemes=SCHEMES))
        folder = config.output_dir / "ann"
        folder.mkdir(parents=True)
        (folder / "user_state.json").write_text(json.dumps(state))
        (folder / "annotation_history.jsonl").write_text("\n".join(map(json.dumps, history)))
        try:
            found = read_annotations(config, config.schemes)
            labelled = labelled_items(config)
        except UserError as error:
            assert "annotation_output/ann/user_state.json: half-written or damaged" in str(error)
            assert not isinstance(state, dict)
            return
        assert isinstance(state, dict)
        assert len(found.people) + found.machines == 1
        assert set(found.items) <= labelled
        for votes in found.votes.values():
            for node in votes.nodes:
                for annotator, code in votes.pattern(node):
                    assert annotator == 0 and all(k in (0, 1) for k in votes.values[code])
                    assert len(votes.values[code]) == 1 or votes.scheme.kind == "multilabel"
