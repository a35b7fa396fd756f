"""A YAML document as nodes that remember where they stand. Texts stay as they were written."""

from __future__ import annotations

from .scalars import NULLS, NotThat, as_boolean, as_integer, as_number

SCALAR, SEQUENCE, MAPPING = "scalar", "sequence", "mapping"


class Node:
    """``value`` is the text of a scalar, the list of a sequence's nodes, or a mapping's dict from
    key text to (key node, value node). ``plain`` says that a scalar has no quotes, so that it may be
    a number. Lines and columns count from 1. ``size`` counts the nodes below with aliases written out.
    """

    __slots__ = ("column", "kind", "line", "plain", "size", "value")

    def __init__(self, kind: str, value, line: int = 0, column: int = 0, plain: bool = False, size: int = 1):
        self.kind = kind
        self.value = value
        self.line = line
        self.column = column
        self.plain = plain
        self.size = size

    @property
    def is_null(self) -> bool:
        return self.plain and self.value in NULLS

    def get(self, key: str) -> Node | None:
        """The value under ``key`` of a mapping; None when it is absent or this is no mapping."""
        if self.kind != MAPPING:
            return None
        pair = self.value.get(key)
        return pair[1] if pair else None

    def items(self):
        """(text, key node, value node) of a mapping's pairs; nothing for other nodes."""
        if self.kind == MAPPING:
            for key, (key_node, value) in self.value.items():
                yield key, key_node, value

    def elements(self) -> list[Node]:
        return self.value if self.kind == SEQUENCE else []

    def text(self) -> str | None:
        """A scalar's text as written; None for null and for anything that is no scalar."""
        return self.value if self.kind == SCALAR and not self.is_null else None


def plain_value(node: Node):
    """Mappings, lists and texts as written; an unquoted null is None. For Potato's own keys."""
    if node.kind == SCALAR:
        return None if node.is_null else node.value
    if node.kind == SEQUENCE:
        return [plain_value(child) for child in node.value]
    return {key: plain_value(pair[1]) for key, pair in node.value.items()}


def guessed_value(node: Node):
    """Like plain_value, with unquoted numbers and booleans read as such. For values of unknown type."""
    if node.kind == SEQUENCE:
        return [guessed_value(child) for child in node.value]
    if node.kind == MAPPING:
        return {key: guessed_value(pair[1]) for key, pair in node.value.items()}
    if not node.plain:
        return node.value
    if node.is_null:
        return None
    numeric = node.value[0] in "0123456789+-."
    for read in (as_integer, as_number) if numeric else (as_boolean,):
        try:
            return read(node.value)
        except NotThat:
            pass
    return node.value


def node_of(value: object, depth: int = 0) -> Node:
    """The node of a value that came from somewhere else than a file (a request, a command line)."""
    if isinstance(value, dict):
        return Node(MAPPING, {str(k): (Node(SCALAR, str(k)), node_of(v)) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return Node(SEQUENCE, [node_of(v) for v in value])
    if isinstance(value, str):
        return Node(SCALAR, value)
    if value is None:
        return Node(SCALAR, "null", plain=True)
    if isinstance(value, bool):
        return Node(SCALAR, "true" if value else "false", plain=True)
    return Node(SCALAR, repr(value), plain=True)
