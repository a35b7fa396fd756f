"""Records of one data file: json (an array, or one object a line), jsonl, csv, tsv."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..schema.errors import UserError
from .elements import elements

#: A JSON array up to this size is read whole: faster, and errors have their line.
WHOLE_JSON_BYTES = 8_000_000

Records = Iterator[tuple[int, Any]]


def read_records(path: Path, shown: str, columns: Sequence[str]) -> tuple[str, Records]:
    """``(unit, records)``: records are ``(place, record)``, place counts from 1 in units of ``unit``.

    ``shown`` is the file's name in messages, ``columns`` what a table must have.
    Raises UserError for a file that cannot be opened or is of another kind; the iterator raises it
    for what cannot be read, with the line or record.
    """
    kind = path.suffix.lower().lstrip(".")
    if kind not in ("json", "jsonl", "csv", "tsv"):
        raise UserError(
            f"{shown}: {kind or 'a file without an extension'} is not supported as a data file",
            "json, jsonl, csv and tsv are read",
        )
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would be waited for without end
            raise UserError(f"the data file {shown} cannot be read: it is not a regular file")
        with path.open("rb") as file:
            is_array = kind == "json" and _first_character(file) == b"["
    except FileNotFoundError:
        raise UserError(
            f"the data file {shown} is not there", "data_files are relative to task_dir"
        ) from None
    except OSError as error:
        raise UserError(f"the data file {shown} cannot be read: {error.strerror}") from None
    if is_array:
        return "record", _array(path, shown)
    if kind in ("csv", "tsv"):
        return "line", _table(path, shown, kind, columns)
    return "line", _lines_of_json(path, shown, kind)


def _first_character(file: Any) -> bytes:
    head = file.read(4096)
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]


def _lines(path: Path, shown: str) -> Iterator[tuple[int, str]]:
    """Lines with their ends. Only a newline ends one: other separators are part of the text."""
    n = 1
    with path.open("rb", buffering=1 << 18) as file:
        try:
            for n, raw in enumerate(file, 1):
                yield n, (raw.removeprefix(b"\xef\xbb\xbf") if n == 1 else raw).decode()
        except UnicodeDecodeError as error:
            byte = f"0x{error.object[error.start]:02x}"
            raise UserError(
                f"{shown}: line {n}: not UTF-8 (byte {byte} at column {error.start + 1})",
                "save the file as UTF-8",
            ) from None


def _lines_of_json(path: Path, shown: str, kind: str) -> Records:
    decode = json.JSONDecoder().decode
    for n, line in _lines(path, shown):
        try:
            yield n, decode(line)
        except (ValueError, RecursionError) as error:
            if line.isspace() or not line:
                continue
            hint = "a .json file is one array of objects, or one object a line" if kind == "json" else ""
            raise UserError(f"{shown}: line {n}: not JSON: {_json_fault(error)}", hint) from None


def _json_fault(error: BaseException) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _array(path: Path, shown: str) -> Records:
    if path.stat().st_size <= WHOLE_JSON_BYTES:
        text = "".join(line for _, line in _lines(path, shown))
        try:
            yield from enumerate(json.loads(text), 1)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{shown}: line {error.lineno}: not JSON: {error.msg} at column {error.colno}"
            ) from None
        except RecursionError:
            raise UserError(f"{shown}: not JSON: nested too deeply") from None
        return
    n = 0
    with path.open("r", encoding="utf-8-sig", newline="") as file:
        try:
            for n, record in enumerate(elements(file), 1):
                yield n, record
        except (json.JSONDecodeError, RecursionError, UnicodeDecodeError) as error:
            # A file of this size is read in blocks: the record is what is known of the place.
            raise UserError(f"{shown}: record {n + 1}: {_fault_in_array(error)}") from None


def _fault_in_array(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 here or soon after (byte 0x{error.object[error.start]:02x})"
    return f"not JSON: {error.msg if isinstance(error, json.JSONDecodeError) else 'nested too deeply'}"


def _table(path: Path, shown: str, kind: str, columns: Sequence[str]) -> Records:
    csv.field_size_limit(sys.maxsize)
    lines = (line for _, line in _lines(path, shown))
    # Potato takes every cell of a tsv as it stands, quotes included, and so a newline ends the row.
    rows = (
        csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        if kind == "tsv"
        else csv.reader(lines, strict=True)
    )
    header: list[str] | None = None
    end = 0
    try:
        for row in rows:
            start, end = end + 1, rows.line_num
            if not row:
                continue
            if header is None:
                header = row
                for column in columns:
                    if column not in header:
                        near = ", ".join(header[:8])
                        raise UserError(f'{shown}: no column "{column}"; its columns are: {near}')
                continue
            if len(row) > len(header):
                raise UserError(
                    f"{shown}: line {start}: {len(row)} cells, but the header has {len(header)} columns",
                    "a cell that holds the separator must be in quotes" if kind == "csv" else "",
                )
            yield start, dict(zip(header, row, strict=False))
    except csv.Error as error:
        hint = 'a quote inside a quoted cell is written twice: ""' if kind == "csv" else ""
        raise UserError(f"{shown}: line {end + 1}: {error}", hint) from None
