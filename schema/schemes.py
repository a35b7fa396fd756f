"""Potato's annotation schemes, as far as training needs them: names, types and labels as texts."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator

from .findings import ERROR, MAX_ERRORS, NOTE, WARNING, Finding
from .nodes import MAPPING, SCALAR, Node
from .scalars import NotThat, as_integer, potato_reading

#: What can be trained, by annotation type.
KINDS = {"radio": "nominal", "select": "nominal", "likert": "ordinal", "multiselect": "multilabel"}
_MAX_LIKERT = 1000

SchemeWords = namedtuple("SchemeWords", "name annotation_type labels")


def read_schemes(root: Node) -> tuple[list[SchemeWords], list[Finding]]:
    """The schemes by which items are annotated. What Potato itself complains about is left to it."""
    schemes: dict[str, SchemeWords] = {}
    findings: list[Finding] = []
    for path, node in _scheme_nodes(root):
        name, annotation_type = node.get("name"), node.get("annotation_type")
        name_text = name.text() if name else None
        type_text = annotation_type.text() if annotation_type else None
        labels = _labels(node, path, findings)
        if name is None or not name_text or not type_text:
            continue
        if name.plain and potato_reading(name_text):
            findings.append(Finding(
                WARNING, f"{path}.name", name.line, name.column,
                f"the name {name_text[:60]} is read by Potato as {potato_reading(name_text)}; quote it"))
        if type_text == "likert" and not labels:
            labels = _likert(node)
        scheme = SchemeWords(name_text, type_text, labels)
        if scheme != schemes.setdefault(name_text, scheme):
            # One and the same scheme may stand in several phases or sets; answers are kept by name alone.
            findings.append(Finding(
                WARNING, f"{path}.name", name.line, name.column,
                f"another annotation scheme with other labels is called {name_text[:60]}; training goes by the first",
                "give each scheme a name of its own"))
    return list(schemes.values()), findings


def _scheme_nodes(root: Node) -> Iterator[tuple[str, Node]]:
    """(path, node) of each scheme, from the three places where Potato takes them."""
    lists = [("annotation_schemes", root.get("annotation_schemes"))]
    phases = root.get("phases")
    if phases is not None:
        # A list, or a mapping by name; questionnaires before and after are phases too, but ask about no item.
        named = [(f"phases[{i}]", phase) for i, phase in enumerate(phases.elements())]
        named += [(f"phases.{name}", phase) for name, _, phase in phases.items()]
        for path, phase in named:
            kind = phase.get("type")
            if kind is not None and kind.text() == "annotation":
                lists.append((f"{path}.annotation_schemes", phase.get("annotation_schemes")))
    sets = root.get("scheme_sets")
    lists += [(f"scheme_sets.{name}", listed) for name, _, listed in (sets.items() if sets else ())]
    for path, listed in lists:
        for i, node in enumerate(listed.elements() if listed else ()):
            if node.kind == MAPPING:
                yield f"{path}[{i}]", node


def _labels(scheme: Node, path: str, findings: list[Finding]) -> tuple[str, ...]:
    listed = scheme.get("labels")
    labels: dict[str, None] = {}
    for i, entry in enumerate(listed.elements() if listed else ()):
        place, node = f"{path}.labels[{i}]", entry
        if entry.kind == MAPPING:
            place, node = f"{place}.name", entry.get("name") or entry
        if node.kind != SCALAR:
            continue
        text = node.value
        reading = potato_reading(text) if node.plain else ""
        if reading and len(findings) <= MAX_ERRORS:
            word = text if len(text) <= 60 else text[:60] + "..."
            message, hint = f"the label {word} is read by YAML as {reading}; quote it", f'write "{word}"'
            if not text:
                message, hint = "there is no label here", "write one, or remove the line"
            findings.append(Finding(ERROR, place, node.line, node.column, message, hint))
        elif text in labels and len(findings) <= MAX_ERRORS:
            findings.append(Finding(NOTE, place, node.line, node.column, f"the label {text[:60]} is listed twice"))
        labels[text] = None
    return tuple(labels)


def _likert(scheme: Node) -> tuple[str, ...]:
    size = scheme.get("size")
    try:
        count = as_integer(size.text() or "") if size else 0
    except NotThat:
        count = 0
    return tuple(str(n) for n in range(1, min(count, _MAX_LIKERT) + 1))
