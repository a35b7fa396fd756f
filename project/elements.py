"""The elements of a JSON array, one after the other, as json.load reads them: NaN and Infinity included, which a
program that writes a table with Python's json leaves in cells without a value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any, TextIO

BLOCK = 1 << 18
#: What a block cuts in two (-Infinity, 12.5e-3, an escape) is wrong, or seems over, within so many signs of its end.
_LONGEST = 16
_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode


def elements(file: TextIO) -> Iterator[Any]:
    """Reads an array in memory for one element. Raises JSONDecodeError (its position tells nothing) and whatever
    else reading may."""
    text = _Text(file)
    text.take("[")
    if text.sign() == "]":
        text.take("]")
    else:
        yield text.value()
        while text.take(",]") == ",":
            yield text.value()
    if text.sign():
        raise JSONDecodeError("Extra data", "", 0)


class _Text:
    """What was read of a file and is not used yet."""

    def __init__(self, file: TextIO):
        self._file = file
        self._text, self._at, self._ended = "", 0, False

    def sign(self) -> str:
        """The next sign that is no space; "" where the file ends."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more()

    def take(self, wanted: str) -> str:
        """Goes past the next sign, which must be one of the ``wanted``."""
        found = self.sign()
        if not found or found not in wanted:
            raise JSONDecodeError(f"Expecting '{wanted[0]}' delimiter", "", 0)
        self._at += 1
        return found

    def value(self) -> Any:
        self.sign()
        while True:
            try:
                value, after = _decode(self._text, self._at)
            except JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos > len(self._text) - _LONGEST
                if self._ended or not cut:
                    raise
            else:
                if after < len(self._text) - _LONGEST or self._ended:  # else a number may go on
                    self._at = after
                    return value
            self._more()

    def _more(self) -> None:
        """As much again as is left: an element of any length is read in a few tries."""
        left = self._text[self._at :]
        block = self._file.read(max(BLOCK, len(left)))
        self._text, self._at, self._ended = left + block, 0, not block
