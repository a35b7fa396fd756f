"""Reads a YAML file into nodes with positions, on top of PyYAML's event parser.

PyYAML's own composer is not used: it takes the last of two equal keys, follows bombs of aliases,
recurses without a bound, and its resolver turns `12:00:00` into 43200.
"""

from __future__ import annotations

import os
import stat
import sys

import yaml

from .findings import ERROR, MAX_ERRORS, Finding
from .nodes import MAPPING, SCALAR, SEQUENCE, Node
from .scalars import potato_reading


class PureParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """For a PyYAML that was built without libyaml: the same events, at a tenth of the speed."""

    def __init__(self, stream: bytes):
        yaml.reader.Reader.__init__(self, stream)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


_Parser = getattr(yaml, "cyaml").CParser if yaml.__with_libyaml__ else PureParser  # noqa: B009 - not in its stubs

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 100
#: Values in one document, aliases written out. A real config has hundreds; a bomb has billions.
MAX_NODES = 250_000
MAX_DIRECTIVES = 100

_CORE = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(_CORE + t for t in ("int", "float", "bool", "null"))
#: Tags that Potato's loader knows as well; they have no meaning for our keys and do no harm.
_HARMLESS_TAGS = frozenset(_CORE + t for t in ("str", "seq", "map", "binary", "timestamp", "set", "omap", "pairs"))


class Unreadable(Exception):
    """The file is no YAML document that we read; carries the one finding that says why."""

    def __init__(self, message: str, line: int = 1, column: int = 1, hint: str = ""):
        super().__init__(message)
        self.finding = Finding(ERROR, "", line, column, message, hint)


def read_bytes(path: str) -> bytes:
    """The file's bytes. Unreadable when there is no such file, or it is no file, or it is too big."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - as below
        if stat.S_ISDIR(mode):
            raise Unreadable("this is a directory", hint="name the config file in it")
        if not stat.S_ISREG(mode):
            raise Unreadable("this is not a regular file")
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs more than all of this reading
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _bounded(data)


def read_stdin(_path: str = "-") -> bytes:
    """The same of what comes on stdin."""
    return _bounded(sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b"")


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise Unreadable(f"the file is over {MAX_BYTES // 2**20} MB; a config is a few hundred lines",
                         hint="is this a data file?")
    return data


def parse(data: bytes) -> tuple[Node, list[Finding]]:
    """The root mapping and what is wrong with it short of being unreadable (duplicate keys, tags)."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    _check_text(data)
    try:
        composer = _Composer(data)
        root = composer.document()
    except yaml.YAMLError as error:
        unreadable = _explain(error, data)
    else:
        return root, composer.findings(root)
    raise unreadable


def _check_text(data: bytes) -> None:
    if not data.strip():
        raise Unreadable("the file is empty")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data[:2]:
        raise Unreadable("the file looks like UTF-16", hint="save the file as UTF-8")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line_start = data.rfind(b"\n", 0, error.start) + 1
        raise Unreadable(
            f"byte 0x{data[error.start]:02x} is not UTF-8", data.count(b"\n", 0, error.start) + 1,
            len(data[line_start:error.start].decode("utf-8", "replace")) + 1, "save the file as UTF-8",
        ) from None
    # libyaml compares each %TAG line with all before it: a file of them would take hours.
    if data.count(b"\n%") + data.count(b"\r%") > MAX_DIRECTIVES:
        raise Unreadable(f"more than {MAX_DIRECTIVES} lines begin with %")


class _Composer:
    def __init__(self, data: bytes):
        self.next_event = _Parser(data).get_event
        self.anchors: dict[str, Node | None] = {}
        self.problems: list[tuple[int, int, tuple[int, int], str, str]] = []
        self.room = MAX_NODES
        self.depth = 0

    def document(self) -> Node:
        self.next_event()  # the stream's start
        if type(self.next_event()) is yaml.StreamEndEvent:
            raise Unreadable("the file is empty: it has comments only")
        event = self.next_event()
        root = self.node(event)
        self.next_event()  # the document's end
        after = self.next_event()
        if type(after) is not yaml.StreamEndEvent:
            raise Unreadable("a second document begins here; a config is one document", *_place(after),
                             hint="remove the line ---")
        if root.kind != MAPPING:
            if root.is_null:
                raise Unreadable("the file is empty")
            what = "a list" if root.kind == SEQUENCE else "one text"
            raise Unreadable(f"the file is {what}, where keys with values are expected",
                             root.line, root.column, "write key: value lines")
        return root

    def node(self, event) -> Node:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            mark = event.start_mark
            tag = event.tag
            if tag is None:
                plain = event.implicit[0]
            else:
                plain = tag in _PLAIN_TAGS
                if not plain and tag != "!":
                    self.check_tag(event)
            node = Node(SCALAR, event.value, mark.line + 1, mark.column + 1, plain)
            if event.anchor is not None:
                self.anchors[event.anchor] = node
        elif kind is yaml.AliasEvent:
            node = self.alias(event)
        else:
            node = self.collection(event)
        self.room -= 1
        if self.room < 0:
            self.too_many(event)
        return node

    def alias(self, event) -> Node:
        name = event.anchor
        if name not in self.anchors:
            raise Unreadable(f"*{name} refers to an anchor &{name} that is not above it", *_place(event),
                             hint="a text that begins with * needs quotes")
        node = self.anchors[name]
        if node is None:
            raise Unreadable(f"*{name} stands inside its own anchor &{name}", *_place(event))
        self.room -= node.size - 1
        if self.room < 0:
            self.too_many(event)
        return node

    def too_many(self, event) -> None:
        raise Unreadable(f"the document has more than {MAX_NODES:,} values, counting each use of an alias",
                         *_place(event), hint="keep data out of the config")

    def collection(self, event) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"this is nested more than {MAX_DEPTH} levels deep", *_place(event))
        if event.tag is not None and event.tag != "!":
            self.check_tag(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        if type(event) is yaml.MappingStartEvent:
            node = self.mapping(event)
        else:
            children = []
            size = 1
            child = self.next_event()
            while type(child) is not yaml.SequenceEndEvent:
                built = self.node(child)
                size += built.size
                children.append(built)
                child = self.next_event()
            node = Node(SEQUENCE, children, *_place(event), size=size)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self.depth -= 1
        return node

    def mapping(self, event) -> Node:
        pairs: dict[str, tuple[Node, Node]] = {}
        merge: tuple[Node, Node] | None = None
        size = 1
        first = self.next_event()
        while type(first) is not yaml.MappingEndEvent:
            key = self.node(first)
            value = self.node(self.next_event())
            size += key.size + value.size
            if key.kind != SCALAR:
                self.say(key, "a key is a list or a mapping", "a key is one word or a text in quotes" if
                         key.kind == SEQUENCE else "a template such as {{ x }} is not filled in; write the value")
            elif key.plain and key.value == "<<":
                if merge:
                    self.duplicate(key, merge[0])
                merge = (key, value)
            elif key.value in pairs and (pairs[key.value][0].plain == key.plain or not potato_reading(key.value)):
                self.duplicate(key, pairs[key.value][0])
            else:
                pairs[key.value] = (key, value)
            first = self.next_event()
        if merge:
            pairs = self.merged(pairs, *merge)
            size = 1 + sum(k.size + v.size for k, v in pairs.values())
        return Node(MAPPING, pairs, *_place(event), size=size)

    def merged(self, pairs: dict, key: Node, value: Node) -> dict:
        sources = value.value if value.kind == SEQUENCE else [value]
        below: dict[str, tuple[Node, Node]] = {}
        for source in sources:
            if source.kind != MAPPING:
                self.say(key, "<< takes a mapping or a list of mappings", "write <<: *name of an anchored mapping")
                continue
            self.room -= len(source.value)
            if self.room < 0:
                raise Unreadable(f"the document has more than {MAX_NODES:,} values, counting each use of an alias",
                                 key.line, key.column)
            for name, pair in source.value.items():
                below.setdefault(name, pair)
        below.update(pairs)
        return below

    def duplicate(self, key: Node, first: Node) -> None:
        self.say(key, f"duplicate key '{_short(key.value)}' at line {key.line} (first at line {first.line})",
                 "YAML would silently take the last one; keep one of them", within=first)

    def check_tag(self, event) -> None:
        tag = event.tag
        if tag in _HARMLESS_TAGS or tag in _PLAIN_TAGS:
            return
        name = _short(tag.replace(_CORE, "!!"))
        message = f"the tag {name} would make Python objects; it is refused" if "python/" in tag \
            else f"the tag {name} is not known"
        self.problems.append((*_place(event), _place(event), message, "write the value without a tag"))

    def say(self, node: Node, message: str, hint: str, within: Node | None = None) -> None:
        within = within or node
        self.problems.append((node.line, node.column, (within.line, within.column), message, hint))

    def findings(self, root: Node) -> list[Finding]:
        problems = self.problems[:MAX_ERRORS + 1]
        paths = _paths_of(root, {place for _, _, place, _, _ in problems}) if problems else {}
        return [Finding(ERROR, paths.get(place, ""), line, column, message, hint)
                for line, column, place, message, hint in problems]


def _paths_of(root: Node, places: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """The paths of the keys that stand at ``places``, else of the values there."""
    todo: list[tuple[str, Node]] = [("", root)]
    seen: set[int] = set()
    keys: dict[tuple[int, int], str] = {}
    values: dict[tuple[int, int], str] = {}
    while todo:
        path, node = todo.pop()
        if (node.line, node.column) in places:
            values.setdefault((node.line, node.column), path)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.kind == SEQUENCE:
            todo.extend((f"{path}[{i}]", child) for i, child in enumerate(node.value))
        for key, key_node, value in node.items():
            below = f"{path}.{_short(key)}" if path else _short(key)
            if (key_node.line, key_node.column) in places:
                keys.setdefault((key_node.line, key_node.column), below)
            todo.append((below, value))
    # A mapping begins where its first key does: the key is meant.
    return {**values, **keys}


def _place(event) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _short(text: str) -> str:
    text = "".join(c if c.isprintable() else "?" for c in text[:61])
    return text if len(text) <= 60 else text[:60] + "..."


def _explain(error: yaml.YAMLError, data: bytes) -> Unreadable:
    from .yaml_errors import explain

    return Unreadable(*explain(error, data))
