"""The one owner of quoting: values of a config become words of a shell, or of an #SBATCH line.

Every ``{{ }}`` of a template names one of these filters, and the environment passes what comes out
through ``finish``: what is not ``Shell`` is quoted there as a word, so that forgetting the filter
costs a test and not a hole.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any


class Shell(str):
    """Text that may stand in a script as it is."""

    __slots__ = ()


#: shellcheck takes these for slips of the pen, inside one kind of quotes each (SC1003, SC2016, SC1112; SC1111).
_IN_SINGLE = frozenset("'$`\\\u2018\u2019").isdisjoint
_IN_DOUBLE = frozenset("\u201c\u201d\u2033\u2036").isdisjoint
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")
_BARE_DIRECTIVE = re.compile(r"--[a-z][a-z0-9-]*(=[A-Za-z0-9_@%+=:,./~*&|()\[\]^-]*)?\Z")


#: Configs repeat their values from run to run. ``typed``: True is not to be found where 1 was kept.
_remembered = functools.lru_cache(maxsize=4096, typed=True)


def text(value: Any) -> str:
    """``value`` as a person would write it. Texts and whole numbers only; NUL and line ends are refused."""
    if isinstance(value, str):
        if "\0" in value or "\n" in value or "\r" in value:
            raise ValueError(f"a script cannot hold this value: {value!r}")
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"a script cannot hold a {type(value).__name__}: {value!r}")


def _double(value: str) -> str:
    return '"' + re.sub(r'[\\$`"]', r"\\\g<0>", value) + '"'


@_remembered
def word(value: Any) -> Shell:
    """One word of sh, bash and dash that stands for exactly the characters of ``value``."""
    value = text(value)
    if value.startswith("~"):  # SC2088: a tilde in quotes looks like a mistake; in quotes of its own it does not
        rest = value.lstrip("~")
        return Shell("'" + value[: len(value) - len(rest)] + "'" + (word(rest) if rest else ""))
    if _IN_SINGLE(value):
        return Shell("'" + value + "'")
    if _IN_DOUBLE(value):
        return Shell(_double(value))
    quoted, at = "", 0
    for run in re.finditer("[\u201c\u201d\u2033\u2036]+", value):
        quoted += (_double(value[at : run.start()]) if run.start() > at else "") + f"'{run[0]}'"
        at = run.end()
    return Shell(quoted + (_double(value[at:]) if at < len(value) else ""))


@_remembered
def words(values: tuple[Any, ...]) -> Shell:
    """Several words, in their order."""
    return Shell(" ".join(map(word, values)))


@_remembered
def path(value: Any) -> Shell:
    """A path on the training machine: like ``word``, but ``~`` and ``~/...`` are that machine's home."""
    value = text(value)
    if value == "~":
        return Shell('"$HOME"')
    if value.startswith("~/"):
        return Shell('"$HOME"/' + word(value[2:]))
    return word(value)


@_remembered
def plain(value: Any) -> Shell:
    """A name that needs no quotes, for comments and job names. ValueError when it would need some."""
    value = text(value)
    if not _PLAIN.match(value):
        raise ValueError(f"not a plain name: {value!r}")
    return Shell(value)


@_remembered
def names(values: tuple[Any, ...]) -> Shell:
    """Several plain names, for a comment."""
    return Shell(", ".join(map(plain, values)))


@_remembered
def variable(value: Any) -> Shell:
    """The name of an environment variable. ValueError for anything else."""
    value = text(value)
    if not (value.isascii() and value.isidentifier()):
        raise ValueError(f"not the name of a variable: {value!r}")
    return Shell(value)


@_remembered
def directive(value: Any) -> Shell:
    """``--flag`` or ``--flag=value`` for an #SBATCH line.

    sbatch reads these lines by rules of its own: double quotes with backslash escapes hold anything,
    `#` outside of them begins a comment, and ``$( )`` means nothing (seen on Slurm 22.05).
    """
    value = text(value)
    if _BARE_DIRECTIVE.match(value):
        return Shell(value)
    flag, equals, rest = value.partition("=")
    if not equals or not _BARE_DIRECTIVE.match(flag):
        raise ValueError(f"not a flag of sbatch: {value!r}")
    return Shell(flag + '="' + rest.replace("\\", "\\\\").replace('"', '\\"') + '"')


_SOURCES = re.compile(r"(^|[;&|({]|\b(?:then|do|else))\s*(?:source|\.)\s")
_SOURCE_LINE = re.compile(r"\s*(?:source|\.)\s")
FOLLOW_NOTHING = "# shellcheck source=/dev/null"


def sources(lines: Sequence[str]) -> bool:
    """Whether one of these lines reads another script in."""
    return any(_SOURCES.search(line) for line in lines)


def sourced_lines_apart(lines: Sequence[str]) -> bool:
    """Whether each of these lines that reads a script in is a command of its own.

    A directive for shellcheck may then stand above it. It may not within a here-document, a text of
    several lines, a continued line or a branch of a one-line construct.
    """
    for line in lines:
        if _SOURCES.search(line) and not _SOURCE_LINE.match(line):
            return False
        if "<<" in line or line.endswith("\\") or line.count('"') % 2 or line.count("'") % 2:
            return False
    return True


@_remembered
def prelude(lines: tuple[str, ...]) -> Shell:
    """The prelude as it stands: shell text of the config's own, one line each, by its nature unquoted."""
    apart = sourced_lines_apart(lines)
    shown: list[str] = []
    for line in lines:
        text(line)
        if apart and _SOURCE_LINE.match(line):
            shown.append(line[: len(line) - len(line.lstrip())] + FOLLOW_NOTHING)
        shown.append(line)
    return Shell("\n".join(shown))


def finish(value: Any) -> str:
    """What a template prints: filtered text as it is, and anything else quoted as a word."""
    return value if isinstance(value, Shell) else word(value)


#: The filters that a template may name.
FILTERS = {"word": word, "words": words, "path": path, "plain": plain, "names": names, "variable": variable,
           "directive": directive, "prelude": prelude}


def normal(value: str) -> str:
    """A remote path without ``//``, ``/./`` and a trailing slash. ``..`` stays: links decide what it means."""
    front = "/" if value.startswith("/") else ""
    return (front + "/".join(part for part in value.split("/") if part not in ("", "."))) or "."
