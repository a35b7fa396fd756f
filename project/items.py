"""A project's items, read as a stream from its data files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..schema.config import Config
from ..schema.errors import UserError
from .records import read_records

#: Items that a Potato server shows and the data files do not hold, below task_dir: a line that says who wrote it,
#: then ``{"id", "text"}`` each. The plugin writes it.
LIVE_ITEMS = "training/live_items.jsonl"
_OTHERS = ("data_sources", "data_directory")
#: So many items without a text are named.
_NAMED = 5
_KINDS = (".json", ".jsonl", ".csv", ".tsv")


class Item(NamedTuple):
    """One thing to annotate. ``data`` is the whole record, as the data file has it."""

    id: str
    text: str
    data: Mapping[str, Any]


class WithoutText:
    """Counts items without a text, and keeps the first few ids to name."""

    def __init__(self) -> None:
        self.n = 0
        self._first: list[str] = []

    def __call__(self, item_id: str) -> None:
        self.n += 1
        if len(self._first) < _NAMED:
            self._first.append(item_id)

    def words(self) -> str:
        """One line for a person; empty when every item has a text."""
        if not self.n:
            return ""
        more = f" and {self.n - _NAMED:,} more" if self.n > _NAMED else ""
        what = "1 item has no text, and is" if self.n == 1 else f"{self.n:,} items have no text, and are"
        return f"{what} left out: {', '.join(self._first)}{more}"


def read_items(config: Config, no_text: Callable[[str], None] = lambda item_id: None) -> Iterator[Item]:
    """Every item of the project that has a text, in the order of ``data_files``.

    A million items pass through in constant memory but for eight-byte marks of the ids seen. ``no_text`` is given
    the id of each item whose text is empty or not there. Raises UserError, naming file and line or record: a file
    that cannot be read, a record that is no object, no id, what cannot be a text, an id that came before; and when
    there are no items at all, or none with a text. Items of sources that only Potato reads are those that its server
    has written down.
    """
    live = config.task_dir / LIVE_ITEMS
    has_live = live.is_file()
    seen: set[int] = set()
    without: list[UserError] = []
    found = False
    if reads_sources(config) or not has_live:
        refuse_other_sources(config)
        for item in _items_of_files(config, seen, no_text, without):
            found = True
            yield item
    if has_live:
        for item in _live_items(live, seen, no_text):
            found = True
            yield item
    if not found:  # a wrong text_key looks like this too
        raise without[0] if without else UserError(
            f"{_names(config)}: no items", "a run needs items and annotations of them"
        )


def _items_of_files(
    config: Config, seen: set[int], no_text: Callable[[str], None], without: list[UserError]
) -> Iterator[Item]:
    id_key, text_key = config.id_key, config.text_key
    for path in config.data_files:
        shown = shown_path(config, path)
        unit, records = read_records(path, shown, (id_key, text_key))
        for place, record in records:
            item_id = _id_of(record, id_key)
            if item_id is None:
                raise UserError(f"{shown}: {unit} {place}: {_why_no_id(record, id_key)}")
            mark = hash(item_id)
            if mark in seen:
                _refuse_repeat(config, item_id, path, place, unit)
            seen.add(mark)
            text = text_of(record.get(text_key))
            if text is not None:
                yield Item(item_id, text, record)
                continue
            empty = _is_empty(record.get(text_key))
            if not empty or not without:
                error = UserError(
                    f'{shown}: {unit} {place}: item "{item_id}" {_why_no_text(record, text_key)}',
                    'give it a text, or take it out of the data file',
                )
                if not empty:
                    raise error
                without.append(error)
            no_text(item_id)


def _live_items(path: Path, seen: set[int], no_text: Callable[[str], None]) -> Iterator[Item]:
    """What a server wrote down beyond the data files; a line that is being written does not count yet."""
    with path.open("rb") as file:
        for line in file:
            try:
                row = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("id"), str) and isinstance(row.get("text"), str):
                mark = hash(row["id"])
                if mark not in seen:
                    seen.add(mark)
                    if row["text"]:
                        yield Item(row["id"], row["text"], row)
                    else:
                        no_text(row["id"])


def file_ids(config: Config) -> set[str]:
    """The ids in the data files, whatever else is in there. Raises UserError for a file that cannot be read."""
    ids = set()
    for path in config.data_files:
        _, records = read_records(path, shown_path(config, path), (config.id_key,))
        for _, record in records:
            item_id = _id_of(record, config.id_key)
            if item_id is not None:
                ids.add(item_id)
    return ids


def reads_sources(config: Config) -> bool:
    """Whether this program reads everything that the config names as a source of items."""
    others = any(config.raw.get(key) for key in _OTHERS)
    return not others and bool(config.data_files) and all(p.suffix.lower() in _KINDS for p in config.data_files)


def refuse_other_sources(config: Config) -> None:
    """Raises UserError for the ways to name items that this program does not read."""
    for key in _OTHERS:
        if config.raw.get(key):
            raise UserError(
                f"{key}: items are read from data_files only",
                "list the files (json, jsonl, csv or tsv) under data_files, or let Potato's server invoke this program",
            )
    if not config.data_files:
        raise UserError("data_files is empty", "list the files (json, jsonl, csv or tsv) there")


def text_of(value: Any) -> str | None:
    """The text of an item; None when there is none.

    A list of turns (texts, or mappings with "text" and perhaps "speaker") becomes one line a turn.
    """
    if isinstance(value, str):
        return value if value and not value.isspace() else None
    if isinstance(value, list):
        turns = [_turn(turn) for turn in value]
        if turns and None not in turns:
            return "\n".join(turn for turn in turns if turn) or None
    return None


def _is_empty(value: Any) -> bool:
    """Whether nothing was written there, as against something that cannot be a text."""
    if value is None or value == [] or value != value:  # NaN stands for what a table has not
        return True
    if isinstance(value, list):
        turns = [_turn(turn) for turn in value]
        return None not in turns and not any(turns)
    return isinstance(value, str) and (not value or value.isspace())


def shown_path(config: Config, path: Path) -> str:
    """The path as messages show it: relative to the project where it lies inside."""
    return str(path.relative_to(config.task_dir)) if path.is_relative_to(config.task_dir) else str(path)


def _turn(turn: Any) -> str | None:
    if isinstance(turn, str):
        return turn.strip()
    if isinstance(turn, Mapping) and isinstance(turn.get("text"), str):
        speaker, text = turn.get("speaker"), turn["text"].strip()
        return f"{speaker}: {text}" if isinstance(speaker, str) and speaker and text else text
    return None


def _id_of(record: Any, key: str) -> str | None:
    if type(record) is not dict:
        return None
    value = record.get(key)
    if type(value) is not str:
        if value is None or isinstance(value, (dict, list)):
            return None
        value = str(value)
    return value if value and not value.isspace() else None


def _why_no_id(record: Any, key: str) -> str:
    if not isinstance(record, dict):
        return f"a {_kind(record)}, where an item (an object) is needed"
    if key not in record:
        near = ", ".join(list(map(str, record))[:8])
        return f'no "{key}" (item_properties.id_key); its keys are: {near}'
    if isinstance(record[key], (dict, list)):
        return f'the id under "{key}" is a {_kind(record[key])}'
    return f'the id under "{key}" is empty'


def _why_no_text(record: Mapping[str, Any], key: str) -> str:
    if key not in record:
        near = ", ".join(list(map(str, record))[:8])
        return f'has no "{key}" (item_properties.text_key); its keys are: {near}'
    value = record[key]
    if _is_empty(value):
        return f'has an empty "{key}"'
    return f'has a {_kind(value)} under "{key}", where a text is needed'


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {dict: "mapping", list: "list", str: "text", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), type(value).__name__)


def _refuse_repeat(config: Config, item_id: str, path: Path, place: int, unit: str) -> None:
    """The marks met before; reads again to find where, since only marks were kept.

    Two ids may share a mark (once in thousands of millions): then nothing is found and all is well.
    """
    for earlier in config.data_files:
        shown = shown_path(config, earlier)
        unit_there, records = read_records(earlier, shown, (config.id_key, config.text_key))
        for n, record in records:
            if earlier == path and n == place:
                return
            if _id_of(record, config.id_key) == item_id:
                here = f"{shown_path(config, path)}: {unit} {place}"
                raise UserError(
                    f'{here}: the id "{item_id}" was used before, in {shown}, {unit_there} {n}',
                    "ids must differ across all data files",
                )


def _names(config: Config) -> str:
    return ", ".join(shown_path(config, path) for path in config.data_files)
