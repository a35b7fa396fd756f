"""Reading YAML: positions, limits, and everything that is no config."""

import os
from pathlib import Path

import pytest
from potato_training.schema import reading
from potato_training.schema.nodes import guessed_value, plain_value
from potato_training.schema.reading import Unreadable, parse, read_bytes


def parsed(text):
    return parse(text.encode() if isinstance(text, str) else text)


def message(text):
    with pytest.raises(Unreadable) as caught:
        parsed(text)
    return caught.value.finding.message


def test_texts_stay_as_they_were_written():
    root, findings = parsed("a: 12:00:00\nb: 007\nc: yes\nd: 1_000\ne: 2024-01-01\nf: ~\ng: '~'\n=: x\n")
    assert not findings
    assert plain_value(root) == {"a": "12:00:00", "b": "007", "c": "yes", "d": "1_000", "e": "2024-01-01", "f": None,
                                 "g": "~", "=": "x"}


def test_values_of_unknown_type_are_read_as_numbers_only_without_quotes():
    root, _ = parsed("[a]: x\n".replace("[a]", "a") + "b: [5e-5, '5', 08, yes, 1.0, null, 1:30]\n")
    assert guessed_value(root) == {"a": "x", "b": [5e-5, "5", "08", True, 1, None, "1:30"]}


def test_nodes_know_where_they_stand():
    root, _ = parsed("a:\n  - b: 'x'\n    é: [1,  2]\n")
    item = root.get("a").value[0]
    key, value = item.value["é"]
    assert (key.line, key.column) == (3, 5)
    assert (value.value[1].line, value.value[1].column) == (3, 13)


def test_an_alias_stands_where_its_anchor_does_and_one_merge_works():
    root, findings = parsed("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: *a\nd:\n  <<: [{x: 9}, *a]\n")
    assert not findings
    assert plain_value(root) == {"a": {"x": "1", "y": "2"}, "b": {"x": "1", "y": "3"}, "c": {"x": "1", "y": "2"},
                                 "d": {"x": "9", "y": "2"}}
    assert root.get("c") is root.get("a")


def test_both_lines_of_a_duplicate_are_named_and_the_first_value_stays():
    root, (finding,) = parsed("a:\n  b: 1\n  c: 2\n  b: 3\n")
    assert finding.message == "duplicate key 'b' at line 4 (first at line 2)"
    assert (finding.path, finding.line, finding.column) == ("a.b", 4, 3)
    assert plain_value(root)["a"]["b"] == "1"


def test_all_duplicates_are_told_at_once():
    _, findings = parsed("a: 1\na: 2\nb: {c: 1, c: 2}\nb: 3\n")
    assert [(f.line, f.path) for f in findings] == [(2, "a"), (3, "b.c"), (4, "b")]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_byte_order_mark_and_windows_line_ends_are_fine(mark, end):
    root, findings = parsed(f"{mark}a: 1{end}b:{end}  - c{end}")
    assert not findings
    assert plain_value(root) == {"a": "1", "b": ["c"]}
    assert root.value["b"][0].line == 2


def test_a_directory_a_missing_file_and_a_pipe_are_no_configs(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, words in ((tmp_path, "directory"), (tmp_path / "none.yaml", "no such file"),
                        (tmp_path / "pipe", "not a regular file"), (tmp_path / "a\0b", "embedded null")):
        with pytest.raises(Unreadable, match=words):
            read_bytes(str(path))


def test_a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 1000)
    file = tmp_path / "c.yaml"
    file.write_bytes(b"a" * 1000)
    assert len(read_bytes(str(file))) == 1000
    file.write_bytes(b"a" * 1001)
    with pytest.raises(Unreadable, match="over 0 MB"):
        read_bytes(str(file))


def nested(depth):
    return "a: " + "[" * (depth - 1) + "]" * (depth - 1) + "\n"


def test_a_hundred_levels_are_enough():
    assert parsed(nested(100))[0].size == 101
    assert message(nested(101)) == "this is nested more than 100 levels deep"


def test_aliases_count_as_often_as_they_are_used():
    ten = "[" + ", ".join(["*a"] * 10) + "]"
    assert parsed(f"a: &a [1, 2, 3]\nb: {ten}\n")[0].size == 1 + 2 + 3 + 1 + 1 + 10 * 4


def test_merges_cannot_make_work_without_end():
    keys = ", ".join(f"k{i}: 1" for i in range(1000))
    sources = ", ".join(["*a"] * 1000)
    assert "more than 250,000 values" in message(f"a: &a {{{keys}}}\nb:\n  <<: [{sources}]\n")


@pytest.mark.parametrize("data", [
    b"%TAG !a! b\n" * 200 + b"---\na: 1\n", b"[" * 1_000_000, b"- " * 1_000_000, b"? " * 1_000_000, b"{" * 999,
    b"a: [" + b"&b x," * 300_000 + b"]", b"a: &a [*a]", b": " * 100_000, b"'" * 1_000_001,
], ids=["directives", "brackets", "dashes", "questions", "braces", "anchors", "recursion", "colons", "quotes"])
def test_hostile_documents_are_refused_with_one_line(data):
    with pytest.raises(Unreadable) as caught:
        parse(data)
    assert "\n" not in caught.value.finding.message


def test_a_tag_that_changes_nothing_is_accepted():
    root, findings = parsed("a: !!str 1\nb: !!int 2\nc: ! 3\nd: !!map {x: !!null ''}\n")
    assert not findings
    assert root.get("a").plain is False
    assert root.get("b").plain is True
    assert plain_value(root)["d"] == {"x": None}


def test_quotes_do_not_make_another_key():
    _, (finding,) = parsed("host: a\n'host': b\n")
    assert finding.message == "duplicate key 'host' at line 2 (first at line 1)"


CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*/*.yaml")), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_without_libyaml_it_reads_the_same(config, monkeypatch):
    def outcome():
        try:
            root, findings = parse(config.read_bytes())
        except Unreadable:
            return "unreadable"  # in other words, and at another end of the mistake
        return plain_value(root), findings

    with_libyaml = outcome()
    monkeypatch.setattr(reading, "_Parser", reading.PureParser)
    assert outcome() == with_libyaml


def test_two_keys_that_only_quotes_tell_apart_are_potatos_business():
    _, findings = parsed("a: {1: x, '1': y}\n")
    assert not findings
