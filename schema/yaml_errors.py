"""libyaml's complaints in words that say what to change. Imported when there is one."""

from __future__ import annotations

import yaml

_HINTS = (
    ("mapping values are not allowed", "a ':' cannot stand here",
     "a text that holds ': ' needs quotes; else the indentation here or just above is wrong"),
    ("did not find expected key", "this line does not fit the lines above it",
     "mend the indentation, or put the text in quotes"),
    ("did not find expected '-' indicator", "this line does not fit the list above it",
     "begin it with '- ', or mend the indentation"),
    ("could not find expected ':'", "a key without its ':' here or just above", "write key: value"),
    ("did not find expected ',' or ']'", "a list in [ ] is not closed, or lacks a comma", "write [a, b]"),
    ("did not find expected ',' or '}'", "a mapping in { } is not closed, or lacks a comma", "write {a: 1, b: 2}"),
    ("found unexpected end of stream", "a quote is opened and never closed", "close it"),
    ("found unexpected document indicator", "a quote is opened and never closed", "close it"),
    ("block sequence entries are not allowed", "a list item cannot begin here", "begin the list on a line of its own"),
    ("did not find expected alphabetic or numeric character", "an anchor or alias without a name",
     "put a text that begins with * or & in quotes"),
    ("found unknown escape character", "a backslash in double quotes begins an escape that does not exist",
     "use single quotes, or write two backslashes"),
    ("found undefined tag handle", "the tag is not known", "put a text that begins with ! in quotes"),
    ("did not find expected <document start>", "this cannot stand here",
     "mend the indentation, or put the text in quotes"),
    ("exceeded maximum nesting depth", "this is nested more than 100 levels deep", ""),
    ("did not find expected node content", "a value is missing here", "put special characters in quotes"),
)


def explain(error: yaml.YAMLError, data: bytes) -> tuple[str, int, int, str]:
    """(message, line, column, hint) of a reading error."""
    if isinstance(error, yaml.reader.ReaderError):
        return _bad_character(error, data)
    problem = str(getattr(error, "problem", None) or error).strip()
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    begun = getattr(error, "context_mark", None)
    lines = data.decode("utf-8", "replace").splitlines()
    here = lines[line - 1][column - 1:column] if line <= len(lines) else ""
    if "cannot start any token" in problem or "tab character" in problem:
        if here == "\t" or "tab" in problem or "\t" in _indent(lines, line):
            return "a tab cannot indent YAML", line, column, "use spaces"
        return f"a text cannot begin with {here}", line, column, "put it in quotes"
    for words, message, hint in _HINTS:
        if words in problem:
            if begun and begun.line + 1 != line and "closed" in message:
                message += f" (it began at line {begun.line + 1})"
            return message, line, column, hint
    return f"this is not YAML: {problem}", line, column, ""


def _indent(lines: list[str], line: int) -> str:
    text = lines[line - 1] if line <= len(lines) else ""
    return text[: len(text) - len(text.lstrip())]


def _bad_character(error: yaml.reader.ReaderError, data: bytes) -> tuple[str, int, int, str]:
    # libyaml gives the character's code and its offset in bytes; the pure parser the character itself.
    char = error.character
    code = char if isinstance(char, int) else ord(char[:1] or "\0")
    at = data.find(chr(code).encode("utf-8", "surrogatepass"))
    at = max(at, 0)
    start = data.rfind(b"\n", 0, at) + 1
    column = len(data[start:at].decode("utf-8", "replace")) + 1
    return (f"the character U+{code:04X} is not allowed in YAML", data.count(b"\n", 0, at) + 1, column,
            "remove it; it may be invisible in an editor")
