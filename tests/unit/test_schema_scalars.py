"""What a plain scalar means to Potato's loader, and to a key that wants a number or a boolean."""

import datetime

import pytest
import yaml
from potato_training.schema.scalars import NotThat, as_boolean, as_integer, as_number, potato_reading

KINDS = {bool: "a boolean", int: "a number", float: "a number", type(None): "nothing (null)", str: "",
         datetime.date: "a date", datetime.datetime: "a date"}

WORDS = [
    "yes", "no", "on", "off", "y", "n", "Y", "N", "true", "True", "TRUE", "tRUE", "false", "null", "Null",
    "NULL", "nULL", "~", "none", "None", "N/A", "NaN", ".nan", ".NaN", ".inf", "-.inf", ".INF", "inf", "1",
    "-1", "+1", "0", "00", "01", "010", "08", "0x1F", "0xg", "0b101", "0b2", "1_000", "_1", "1__0", "1.5",
    "1.", ".5", ".", "1e3", "1.0e3", "1.e+3", "1.0e+3", "5e-5", "12:30", "12:00:00", "04:00:00", "0:30",
    "1:60", "1:5", "190:20:30.15", "2024-01-01", "2024-1-1", "2024-01-01T10:00:00Z",
    "2001-12-14t21:59:43.10-05:00", "1-2", "1-12:00", "a", "1a", "-a", "-", "+", "+-", "-1-", "0o17", "yes!",
    "Yess", "ON", "Off", "oN", "é", "٣", "1.000.000",
]


@pytest.mark.parametrize("word", WORDS)
def test_potatos_reading_is_that_of_its_loader(word):
    value = "-" if word == "-" else yaml.safe_load(f"[{word}]")[0]
    expected = KINDS[type(value)]
    got = potato_reading(word)
    assert got.replace(" in base 60", "") == expected


def test_the_special_signs_need_quotes():
    assert potato_reading("=") == potato_reading("<<") == "a special sign"
    assert potato_reading("") == "nothing (null)"


@pytest.mark.parametrize(("text", "value"), [
    ("0", 0), ("90", 90), ("-3", -3), ("+4", 4), ("1_000", 1000), ("5e-5", 5e-5), ("1e3", 1000.0), (".5", 0.5),
    ("1.", 1.0), ("-.5", -0.5), ("0.7", 0.7), ("2.0", 2.0), ("0e0", 0.0), ("1.E+2", 100.0),
])
def test_numbers(text, value):
    got = as_number(text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("text", ["", "a", "-", "+", ".", "..5", "-.", "1:30", "0x10", "010", "08", "00", "1__0", "_1",
                                  "1_", "1e", "1e400", ".inf", "-.INF", ".nan", "nan", "Infinity", "1 2", " 1", "1 ",
                                  "1\n", "٣", "1" * 41, "1,5", "--1", "0b1", "0o7", "5GB", "1_000_.5"])
def test_what_is_no_number(text):
    with pytest.raises(NotThat):
        as_number(text)


@pytest.mark.parametrize(("text", "why"), [("010", "begins with a zero"), ("0x10", "not a decimal number"),
                                           (".nan", "not a finite number"), ("1e999", "too large"),
                                           ("1" * 99, "too many digits")])
def test_a_reason_is_given_where_there_is_one(text, why):
    with pytest.raises(NotThat, match=why):
        as_number(text)


def test_a_whole_number_may_be_written_as_a_fraction():
    assert as_integer("2.0") == 2
    assert type(as_integer("1e3")) is int
    assert as_integer(str(2**63 - 1)) == 2**63 - 1
    for text in ("2.5", str(2**63), "1e30", "yes"):
        with pytest.raises(NotThat):
            as_integer(text)


def test_booleans_are_those_that_potato_takes():
    assert [as_boolean(w) for w in ("true", "Yes", "ON", "false", "No", "off")] == [True] * 3 + [False] * 3
    for text in ("1", "0", "y", "tRUE", "", "null"):
        with pytest.raises(NotThat):
            as_boolean(text)
