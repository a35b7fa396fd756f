"""Items from data files of every kind, and one clear line for each thing that is wrong with them."""

import io
import json
import os

import pytest
from potato_training.project import elements
from potato_training.project.items import LIVE_ITEMS, WithoutText, read_items, text_of
from potato_training.project.records import WHOLE_JSON_BYTES
from potato_training.schema.errors import UserError


@pytest.fixture
def reading(new_project):
    """``reading(name, bytes, ...)``: the items of a project with that one data file."""

    def read(name, content, **options):
        config = new_project(0, data=name, **options)
        (config.task_dir / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(read_items(config))

    return read


GOOD = {
    "array.json": '[{"id": "a", "text": "één"}, {"id": 2, "text": "two", "more": 1}]',
    "lines.json": '{"id": "a", "text": "één"}\n\n{"id": 2, "text": "two"}\n',
    "x.jsonl": '{"id": "a", "text": "één"}\n{"id": 2, "text": "two"}',
    "bom.jsonl": '\ufeff{"id": "a", "text": "één"}\r\n{"id": 2, "text": "two"}\r\n',
    "bom.json": '\ufeff [{"id": "a", "text": "één"}, {"id": 2, "text": "two"}]',
    "x.csv": "id,text\na,één\n2,two\n",
    "crlf.csv": '\ufeffid,text\r\na,"één"\r\n\r\n2,two\r\n',
    "x.tsv": "text\tid\néén\ta\ntwo\t2\n",
    "UPPER.CSV": "id,text\na,één\n2,two\n",
}


@pytest.mark.parametrize("name", GOOD)
def test_every_kind_of_file_gives_the_same_items(reading, name):
    assert [(item.id, item.text) for item in reading(name, GOOD[name])] == [("a", "één"), ("2", "two")]


def test_the_whole_record_comes_along(reading):
    (item,) = reading("x.json", '[{"id": "a", "text": "t", "more": [1, 2.5]}]')
    assert item.data == {"id": "a", "text": "t", "more": [1, 2.5]}


def test_quotes_separators_and_newlines_in_cells(reading):
    text = 'he said "no, never"\nand left'
    cell = text.replace('"', '""')
    (item,) = reading("x.csv", f'id,text\na,"{cell}"\n')
    assert item.text == text


def test_a_tsv_cell_is_taken_as_it_stands(reading):
    items = reading("x.tsv", 'id\ttext\na\t"open quote\nb\tplain\n')
    assert [item.text for item in items] == ['"open quote', "plain"]


def test_a_field_of_a_megabyte(reading):
    (item,) = reading("x.csv", "id,text\na," + "x" * 1_000_000 + "\n")
    assert len(item.text) == 1_000_000


@pytest.mark.parametrize("name", ["big.json", "big.jsonl"])
def test_large_files_are_read_as_small_ones(reading, name):
    rows = [{"id": n, "text": f"text {n} " + "é" * 500, "score": 0.5} for n in range(9000)]
    text = json.dumps(rows) if name == "big.json" else "\n".join(map(json.dumps, rows))
    assert len(text) > WHOLE_JSON_BYTES
    items = reading(name, text)
    assert [item.id for item in items] == [str(n) for n in range(9000)]
    assert items[-1].text == rows[-1]["text"] and items[-1].data["score"] == 0.5


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 18])
@pytest.mark.parametrize("text", [
    "[]", " [ ] \n", '[{"id": 1, "text": "a"}]',
    '[{"a": NaN}, -Infinity ,\r\n12.5e-3,"\\ud83d\\ude00 é", null,[[]],true ]\n',
    '["long", "' + "x" * 5000 + '\\"y"]',
    "[1", "[1,", "[1,]", "[1 2]", '["never closed', "[1] x", "[tru]", "[1}", "", "[",
    '[{"a" 1}]', '["\x00"]', '["\\uZZZZ"]',
])
def test_an_array_in_blocks_is_read_as_a_whole_one(text, block, monkeypatch):
    monkeypatch.setattr(elements, "BLOCK", block)
    try:
        whole = json.dumps(json.loads(text))
    except ValueError:
        with pytest.raises(json.JSONDecodeError):
            list(elements.elements(io.StringIO(text)))
    else:
        assert json.dumps(list(elements.elements(io.StringIO(text)))) == whole


def test_a_fault_early_in_a_large_array_is_told_without_reading_on():
    class Endless(io.StringIO):
        def read(self, size=-1):
            return super().read(size) or "x" * size

    with pytest.raises(json.JSONDecodeError):
        list(elements.elements(Endless('[{"id" 1}, ' + " " * 100)))


def test_cells_without_a_value_are_read_in_files_of_any_size(reading):
    row = '{"id": %d, "text": "' + "x" * 1000 + '", "other": NaN}'
    for n in (3, 9000):
        text = "\ufeff[" + ", ".join(row % k for k in range(n)) + "]"
        assert [item.id for item in reading("rows.json", text)] == [str(k) for k in range(n)]


def test_several_files_in_the_order_of_the_config(new_project):
    config = new_project(2, data_files=["data/items.jsonl", {"path": "data/more.csv"}])
    (config.task_dir / "data/more.csv").write_text("id,text\nz,last\n")
    assert [item.id for item in read_items(config)] == ["i1", "i2", "z"]


BAD = [
    ("x.jsonl", '{"id": 1, "text": "a"}\n{"id": 2, "text"}\n', "x.jsonl: line 2: not JSON", "column 17"),
    ("x.json", '[{"id": 1, "text": "a"},\n {"id": 2 "text": "b"}]', "x.json: line 2: not JSON", "column 11"),
    ("x.json", '[{"id": 1, "text": "a"}', "x.json: line 1: not JSON", ""),
    ("x.json", '{\n "id": 1,\n "text": "a"\n}', "x.json: line 1: not JSON", ""),
    ("x.json", "[" * 100_000, "x.json: not JSON: nested too deeply", ""),
    ("x.jsonl", "[" * 100_000, "x.jsonl: line 1: not JSON: nested too deeply", ""),
    ("x.jsonl", b'{"id": 1, "text": "a"}\n{"id": 2, "text": "\xe9"}\n', "x.jsonl: line 2: not UTF-8", "0xe9"),
    ("x.json", b'[{"id": 1,\n "text": "\xe9"}]', "x.json: line 2: not UTF-8", "0xe9"),
    ("x.csv", b"id,text\n1,caf\xe9\n", "x.csv: line 2: not UTF-8", "column 6"),
    ("x.csv", "id,text\n1,ok\n2,a,b\n", "x.csv: line 3: 3 cells, but the header has 2 columns", ""),
    ("x.csv", 'id,text\n1,"never closed\n2,b\n', "x.csv: line", "unexpected end of data"),
    ("x.csv", "key,text\n1,a\n", 'x.csv: no column "id"', "its columns are: key, text"),
    ("x.tsv", "id\tbody\n1\ta\n", 'x.tsv: no column "text"', "its columns are: id, body"),
    ("x.jsonl", '{"text": "a"}', 'x.jsonl: line 1: no "id" (item_properties.id_key)', "its keys are: text"),
    ("x.jsonl", '{"id": "", "text": "a"}', 'line 1: the id under "id" is empty', ""),
    ("x.jsonl", '{"id": " ", "text": "a"}', 'line 1: the id under "id" is empty', ""),
    ("x.jsonl", '{"id": null, "text": "a"}', 'line 1: the id under "id" is empty', ""),
    ("x.jsonl", '{"id": [1], "text": "a"}', 'line 1: the id under "id" is a list', ""),
    ("x.jsonl", "[1, 2]", "x.jsonl: line 1: a list, where an item", ""),
    ("x.json", '[{"id": 1, "text": "a"}, 7]', "x.json: record 2: a number, where an item", ""),
    ("x.jsonl", '{"id": 1}', 'line 1: item "1" has no "text" (item_properties.text_key)', "its keys are: id"),
    ("x.jsonl", '{"id": 1, "text": ""}', 'line 1: item "1" has an empty "text"', ""),
    ("x.jsonl", '{"id": 1, "text": " \\n "}', 'line 1: item "1" has an empty "text"', ""),
    ("x.jsonl", '{"id": 1, "text": null}', 'line 1: item "1" has an empty "text"', ""),
    ("x.jsonl", '{"id": 1, "text": NaN}', 'line 1: item "1" has an empty "text"', ""),
    ("x.jsonl", '{"id": 1, "text": 5}', 'item "1" has a number under "text", where a text is needed', ""),
    ("x.jsonl", '{"id": 1, "text": {"a": 1}}', 'has a mapping under "text"', ""),
    ("x.jsonl", '{"id": 1, "text": ["a", 2]}', 'has a list under "text"', ""),
    ("x.csv", "id,text\n1,\n", 'x.csv: line 2: item "1" has an empty "text"', ""),
    ("x.csv", "text,id\nshort\n", 'x.csv: line 2: no "id"', ""),
    ("x.jsonl", "", "x.jsonl: no items", ""),
    ("x.json", "[]", "x.json: no items", ""),
    ("x.csv", "id,text\n", "x.csv: no items", ""),
    ("x.parquet", "PAR1", "x.parquet: parquet is not supported as a data file", ""),
    ("x", "a", "x: a file without an extension is not supported", ""),
]


@pytest.mark.parametrize(("name", "content", "start", "also"), BAD)
def test_one_clear_line_for_what_is_wrong(reading, name, content, start, also):
    with pytest.raises(UserError) as caught:
        reading(name, content)
    assert start in caught.value.message and also in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("cut", [20, 10_000_000])
def test_a_large_array_that_is_damaged_names_the_record(reading, cut):
    rows = json.dumps([{"id": n, "text": "x" * 1000} for n in range(11_000)])
    with pytest.raises(UserError, match=r"big\.json: record \d+: not JSON"):
        reading("big.json", rows[:cut] + "\x00" + " " * WHOLE_JSON_BYTES)


@pytest.mark.parametrize(
    ("first", "second", "places"),
    [
        ("data/a.jsonl", "data/a.jsonl", "data/a.jsonl: line 2: .* in data/a.jsonl, line 1"),
        ("data/a.jsonl", "data/b.csv", "data/b.csv: line 2: .* in data/a.jsonl, line 1"),
        ("data/b.csv", "data/c.json", "data/c.json: record 1: .* in data/b.csv, line 2"),
    ],
)
def test_an_id_used_twice_names_both_places(new_project, first, second, places):
    config = new_project(0, data="data/a.jsonl", data_files=list(dict.fromkeys([first, second])))
    row = '{"id": "same", "text": "t"}'
    texts = {"jsonl": f"{row}\n", "csv": "id,text\nsame,t\n", "json": f"[{row}]"}
    for name in (first, second):
        with (config.task_dir / name).open("a") as file:
            file.write(texts[name.rpartition(".")[2]])
    with pytest.raises(UserError, match=f'{places.replace(".csv", "[.]csv")}') as caught:
        list(read_items(config))
    assert '"same"' in caught.value.message


def test_ids_that_are_the_same_as_text_are_the_same(reading):
    with pytest.raises(UserError, match="line 2"):
        reading("x.jsonl", '{"id": 1, "text": "a"}\n{"id": "1", "text": "b"}')


def test_a_data_file_that_is_gone(new_project):
    config = new_project(1)
    (config.task_dir / "data/items.jsonl").unlink()
    with pytest.raises(UserError, match=r"the data file data/items\.jsonl is not there"):
        list(read_items(config))


def test_a_data_file_that_is_a_directory(new_project):
    config = new_project(1)
    (config.task_dir / "data/items.jsonl").unlink()
    (config.task_dir / "data/items.jsonl").mkdir()
    with pytest.raises(UserError, match=r"data/items\.jsonl cannot be read: Is a directory"):
        list(read_items(config))


def test_a_pipe_in_place_of_a_data_file_is_not_waited_for(new_project):
    config = new_project(1)
    (config.task_dir / "data/items.jsonl").unlink()
    os.mkfifo(config.task_dir / "data/items.jsonl")
    with pytest.raises(UserError, match=r"data/items\.jsonl cannot be read: it is not a regular file"):
        list(read_items(config))


@pytest.mark.parametrize("key", ["data_sources", "data_directory"])
def test_other_ways_to_name_items_are_refused(new_project, key):
    config = new_project(1, **{key: "somewhere"})
    with pytest.raises(UserError, match=f"{key}: items are read from data_files only"):
        list(read_items(config))


def live(config, *rows, end="\n"):
    path = config.task_dir / LIVE_ITEMS
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in ({"live_items": 1, "pid": 1}, *rows)) + end)


def test_live_items_come_after_those_of_the_files(new_project):
    config = new_project(2)
    live(config, {"id": "i2", "text": "again"}, {"id": "new", "text": "added"}, {"id": 3}, {"id": "new", "text": "x"},
         {"id": "half", "text": "being written"}, end="")
    assert [(item.id, item.text) for item in read_items(config)][1:] == [("i2", "text number 2"), ("new", "added")]


@pytest.mark.parametrize("more", [{"data_directory": "somewhere"}, {"data": "data/items.parquet"}])
def test_items_of_sources_that_only_potato_reads_are_the_live_ones(new_project, more):
    config = new_project(1, **more)
    live(config, {"id": "d1", "text": "from there"})
    assert [item.id for item in read_items(config)] == ["d1"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (["one", " two "], "one\ntwo"),
        ([{"speaker": "A", "text": "hi"}, {"text": "yes"}], "A: hi\nyes"),
        ([{"speaker": "A", "text": ""}, "x"], "x"),
        (["", " "], None),
        ([], None),
        ([{"speaker": "A"}], None),
        ("\t", None),
        (True, None),
    ],
)
def test_what_is_a_text(value, text):
    assert text_of(value) == text


NONE = ['""', '" \\n\\t"', "null", "[]", '["", {"text": " ", "speaker": "A"}]', None]


def test_items_without_a_text_are_counted_and_named_and_stop_nothing(reading, new_project):
    texts = ["" if text is None else f', "text": {text}' for text in NONE]
    lines = [f'{{"id": "n{n}"{text}}}' for n, text in enumerate(texts)]
    config = new_project(2)
    with config.data_files[0].open("a") as out:
        out.write("\n".join(lines) + "\n")
    without = WithoutText()
    assert [item.id for item in read_items(config, without)] == ["i1", "i2"]
    assert without.words() == "6 items have no text, and are left out: n0, n1, n2, n3, n4 and 1 more"
    with config.data_files[0].open("a") as out:
        out.write('{"id": "n1", "text": "again"}\n')
    with pytest.raises(UserError, match='the id "n1" was used before'):
        list(read_items(config))
    for text in NONE[:-1]:
        with pytest.raises(UserError, match='item "1" has an empty "text"'):
            reading("x.jsonl", f'{{"id": 1, "text": {text}}}')
