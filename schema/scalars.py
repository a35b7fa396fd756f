"""What a plain scalar of YAML means: texts, and numbers or booleans where a key wants them.

Two readings live here. `potato_reading` is that of Potato's own loader (YAML 1.1), which turns an
unquoted `no` into False and `12:00:00` into 43200: it serves to find labels that need quotes.
`as_integer`, `as_number`, `as_boolean` are ours: used only where a key wants that type.
"""

from __future__ import annotations

import re

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
TRUES = frozenset(word for w in ("true", "yes", "on") for word in (w, w.capitalize(), w.upper()))
FALSES = frozenset(word for w in ("false", "no", "off") for word in (w, w.capitalize(), w.upper()))

#: First characters of everything that YAML 1.1 may read as something other than text.
_SUSPECTS = frozenset("0123456789+-.~nNtTyYfFoO=<")

_YAML11 = (
    ("a number", r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)"),
    ("a number in base 60", r"[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+"),
    ("a number", r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?"),
    ("a number", r"[-+]?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"),
    ("a number in base 60", r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*"),
    ("a number", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"),
    ("a date", r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    ("a date", r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?"
               r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?[0-9]{2})?))?"),
)
_yaml11: list[tuple[str, re.Pattern[str]]] = []


def potato_reading(text: str) -> str:
    """What YAML 1.1 makes of the plain scalar ``text``: "" for a text, else "a boolean", "a date", ..."""
    if text in NULLS:
        return "nothing (null)"
    if text[0] not in _SUSPECTS:
        return ""
    if text in TRUES or text in FALSES:
        return "a boolean"
    if text in ("=", "<<"):
        return "a special sign"
    if not _yaml11:
        _yaml11.extend((name, re.compile(pattern)) for name, pattern in _YAML11)
    return next((name for name, pattern in _yaml11 if pattern.fullmatch(text)), "")


class NotThat(ValueError):
    """The text is not of the wanted type; the message says why when there is more to say."""


#: Longest number worth reading: Python itself refuses to read integers of over 4,300 digits.
_MAX_DIGITS = 40
_MAX_INTEGER = 2**63 - 1


def _digits(text: str) -> str:
    if len(text) > _MAX_DIGITS:
        raise NotThat("has too many digits")
    body = text[1:] if text[:1] in ("+", "-") else text
    if not body.isascii() or not (body[:1].isdigit() or body[:2].lstrip(".").isdigit()) or body[-1].isspace():
        raise NotThat
    if len(body) > 1 and body[0] == "0" and body[1] not in ".eE":
        raise NotThat("begins with a zero" if body.replace("_", "").isdigit() else "is not a decimal number")
    if body.endswith("_") or "__" in body or "_." in body:
        raise NotThat
    return text.replace("_", "")


def as_number(text: str) -> int | float:
    """``90`` -> 90, ``5e-5`` -> 5e-05, ``1_000`` -> 1000. NotThat for all else, NaN and infinities too."""
    if text.lstrip("+-").lower() in (".inf", "inf", "infinity", ".nan", "nan"):
        raise NotThat("is not a finite number")
    clean = _digits(text)
    try:
        value = float(clean)
    except ValueError:
        raise NotThat from None
    if value in (float("inf"), float("-inf")):
        raise NotThat("is too large")
    if clean.lstrip("+-").isdigit():
        return int(clean)
    return value


def as_integer(text: str) -> int:
    """``90`` -> 90, ``2.0`` -> 2. NotThat for all else, and beyond 64 bits."""
    value = as_number(text)
    if value != int(value):
        raise NotThat("is not a whole number")
    if abs(value) > _MAX_INTEGER:
        raise NotThat("is too large")
    return int(value)


def as_boolean(text: str) -> bool:
    if text in TRUES:
        return True
    if text in FALSES:
        return False
    raise NotThat
