"""What every annotator said about every item, for one scheme, in a few bytes an item.

Items that were given the same answers by the same annotators share a *pattern*: consensus and agreement are
worked out once a pattern, not once an item, and memory goes with the number of patterns.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator

from ..schema.config import Scheme

#: ((annotator, code), ...), annotators ascending. A code is an index into Votes.values.
Pattern = tuple[tuple[int, int], ...]


class Votes:
    """The answers to one scheme. Annotators must be added in ascending order of their number."""

    def __init__(self, scheme: Scheme):
        self.scheme = scheme
        #: What a code means: the label's index, alone or (multilabel) several, ascending.
        self.values: list[tuple[int, ...]] = [(k,) for k in range(len(scheme.labels))]
        #: item number -> node of the tree of answers; 0 = nobody answered.
        self.nodes = array("I")
        #: items (numbers) whose answer only confirms a prelabel, one entry an answer.
        self.confirmed = array("I")
        self.unresolved = 0
        self.unknown: Counter[str] = Counter()
        self._codes = {value: code for code, value in enumerate(self.values)}
        self._index = {label: k for k, label in enumerate(scheme.labels)}
        self._children: dict[tuple[int, int, int], int] = {}
        self._path: list[tuple[int, int, int]] = [(0, 0, 0)]

    def code(self, labels: Collection[str]) -> int | None:
        """The code of an answer; None when none of its labels is the scheme's (each is counted)."""
        if len(labels) == 1:  # most answers
            (label,) = labels
            if label in self._index:
                return self._index[label]  # single labels have the first codes, in their order
        known = []
        for label in labels:
            k = self._index.get(label)
            if k is None:
                # labels come from outside: a million different ones must not fill the memory
                self.unknown[label if label in self.unknown or len(self.unknown) < 1000 else "..."] += 1
            else:
                known.append(k)
        if not known:
            return None
        value = tuple(sorted(set(known)))
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code

    def add(self, item: int, annotator: int, code: int) -> None:
        if item >= len(self.nodes):
            self.nodes.extend([0] * (item + 1 - len(self.nodes)))
        step = (self.nodes[item], annotator, code)
        node = self._children.get(step)
        if node is None:
            node = self._children[step] = len(self._path)
            self._path.append(step)
        self.nodes[item] = node

    def node(self, item: int) -> int:
        """The item's node; 0 when nobody answered."""
        return self.nodes[item] if item < len(self.nodes) else 0

    def pattern(self, node: int) -> Pattern:
        answers = []
        while node:
            node, annotator, code = self._path[node]
            answers.append((annotator, code))
        return tuple(reversed(answers))

    def count(self, seen: bytes | bytearray) -> Counter[int]:
        """How many of the items that are ``seen`` (1 by item number) have each node; 0 is left out."""
        return Counter(node for item, node in enumerate(self.nodes) if node and seen[item])

    def answered(self) -> Iterator[int]:
        """Numbers of the items with an answer."""
        return (item for item, node in enumerate(self.nodes) if node)
