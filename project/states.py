"""One annotator's user_state.json, as Potato 2.12 and older write it."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..schema.errors import UserError

#: A state up to this size is read whole, a larger one as a stream.
WHOLE_BYTES = 4_000_000

LABELS = "instance_id_to_label_to_value"
SPANS = "instance_id_to_span_to_value"
BEHAVIOUR = "instance_id_to_behavioral_data"

#: The name under which a select keeps its label, as the value.
SELECT = "select-one"

#: A label as stored: scheme, name, value.
Triple = tuple[str, str, Any]


class State:
    """An open user_state.json that has been read to its end once, so that it is known to be whole.

    ``origin`` says who annotates ({} is a person). Sections are read again at each call of
    ``section``, from the same open file: Potato replaces the file by rename, which does not disturb.
    """

    def __init__(self, file: BinaryIO, whole: Mapping[str, Any] | None, origin: Any):
        self._file = file
        self._whole = whole
        self.origin = origin

    def section(self, name: str) -> Iterator[tuple[str, Any]]:
        """The pairs of one top-level mapping; nothing when it is not there or no mapping."""
        if self._whole is not None:
            part = self._whole.get(name)
            yield from part.items() if isinstance(part, dict) else ()
            return
        import ijson

        self._file.seek(0)
        yield from ijson.kvitems(self._file, name, use_float=True, buf_size=1 << 18)

    def close(self) -> None:
        self._file.close()


def open_state(
    path: Path, shown: str, *, pause: Callable[[], None] = lambda: time.sleep(0.3)
) -> State | None:
    """Opens and checks one state; None when the file has gone.

    A file that does not parse is read once more after a ``pause``: a copy under way (rsync, a network
    drive) is over then. Raises UserError when it still does not.
    """
    for last in (False, True):
        try:
            return _open(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{shown} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            if last:
                raise UserError(
                    f"{shown}: half-written or damaged: {_fault(error)}",
                    "Potato writes it whole at the next save; if the project is a copy, copy it again",
                ) from None
        pause()
    return None


def _open(path: Path) -> State:
    file = path.open("rb")
    try:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        if size > WHOLE_BYTES:
            with suppress(ValueError):  # NaN, which json reads and a stream does not, or a fault that json can place
                return State(file, None, _scan(file))
        file.seek(0)
        whole = json.loads(file.read())
        if not isinstance(whole, dict):
            raise ValueError("it holds no JSON object")
        return State(file, whole, whole.get("origin"))
    except BaseException:
        file.close()
        raise


def _scan(file: BinaryIO) -> Any:
    """Reads a large state to its end; the origin. Raises ValueError when it is not whole."""
    import ijson

    if file.read(64).lstrip()[:1] != b"{":
        raise ValueError
    file.seek(0)
    origin = None
    try:
        for origin in ijson.items(file, "origin", use_float=True, buf_size=1 << 18):  # noqa: B007
            pass
    except ijson.JSONError:
        raise ValueError from None
    return origin


def _fault(error: BaseException) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return str(error) or type(error).__name__


def triples(stored: Any) -> list[Triple]:
    """The labels of one item that are set, from either form that Potato has written.

    Now: ``[[{"schema", "name"}, value], ...]``; earlier: ``{schema: {name: value}}``. What has another shape
    is passed over.
    """
    found: list[Triple] = []
    if isinstance(stored, list):
        for pair in stored:
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], dict):
                schema, name = pair[0].get("schema"), pair[0].get("name")
                if isinstance(schema, str) and isinstance(name, str) and is_set(name, pair[1]):
                    found.append((schema, name, pair[1]))
    elif isinstance(stored, dict):
        for schema, names in stored.items():
            if isinstance(names, dict):
                found += [(schema, name, value) for name, value in names.items() if is_set(name, value)]
    return found


def is_set(name: str, value: Any) -> bool:
    """Whether a stored value says that the label applies: one that is falsy or "false" says that it does not.

    But a label may be called "false" itself: a choice keeps its own name as the value, a select its label.
    """
    return bool(value) and (value != "false" or name in ("false", SELECT))


def seeded(shown: Any) -> frozenset[str]:
    """The labels that a prelabel proposed: a name, {"label": name}, or a list of either."""
    each = shown if isinstance(shown, list) else [shown]
    names = (one.get("label") if isinstance(one, dict) else one for one in each)
    return frozenset(name for name in names if isinstance(name, str))
