"""The corridor of validation: bytes, nodes, the schema, the rules, findings. Nothing is started, nothing raises."""

from __future__ import annotations

import os
from json import loads

from . import acknowledge
from .findings import ERROR, MAX_ERRORS, NOTE, WARNING, Finding
from .nodes import MAPPING, SCALAR, SEQUENCE, Node
from .reading import Unreadable, parse, read_bytes
from .rules import BUILTIN_NAMES, TRAINING, Rules, check_top_level
from .schemes import read_schemes
from .walk import TooManyErrors, Walker

_schema: dict = {}


def config_schema() -> dict:
    """The JSON Schema of config.yaml, read once."""
    if not _schema:
        here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - validate has no time for pathlib
        with open(os.path.join(here, "config.schema.json"), "rb") as file:  # noqa: PTH118, PTH123
            _schema.update(loads(file.read()))
    return _schema


class Report:
    """What was found in one file. ``root`` is None when it could not be read; ``values`` are those of
    model_training, normalised, where they are right."""

    __slots__ = ("acknowledged", "data", "findings", "path", "root", "schemes", "values")

    def __init__(self, path: str):
        self.path = path
        self.data = b""
        self.root: Node | None = None
        self.values: dict = {}
        self.schemes: list = []
        self.findings: list[Finding] = []
        self.acknowledged: list[Finding] = []

    def of(self, level: str) -> list[Finding]:
        return [f for f in self.findings if f.level == level]

    def fails(self, strict: bool) -> bool:
        return any(f.level == ERROR or (strict and f.level == WARNING) for f in self.findings)


def check(path: str, trainers=BUILTIN_NAMES, read=read_bytes) -> Report:
    """Reads and checks one file. ``trainers``: the catalogue (name -> something with ``params_schema``), or names.
    ``read`` gives the bytes of ``path``."""
    report = Report(path)
    try:
        report.data = read(path)
        report.root, report.findings = parse(report.data)
    except Unreadable as unreadable:
        report.findings = [unreadable.finding]
        return report
    check_root(report, trainers)
    report.findings.sort(key=_order)
    return report


def _enough(findings: list[Finding]) -> list[Finding]:
    """The first MAX_ERRORS errors and everything else, with a note when some are left out."""
    errors = 0
    kept = []
    for finding in sorted(findings, key=_order):
        errors += finding.level == ERROR
        if finding.level != ERROR or errors <= MAX_ERRORS:
            kept.append(finding)
    if errors >= MAX_ERRORS:
        kept.append(Finding(NOTE, "", 1, 1, f"there are {MAX_ERRORS} errors or more; others are not told"))
    return kept


def check_root(report: Report, trainers) -> None:
    root = report.root
    assert root is not None
    walker = Walker(config_schema())
    defs = walker.root["$defs"]
    report.schemes, said = read_schemes(root)
    report.findings += said
    try:
        check_top_level(root, walker)
        _check_paths(root, walker)
        training = root.get(TRAINING)
        if training is not None:
            values = walker.walk(training, defs[TRAINING], TRAINING, TRAINING)
            if training.kind == MAPPING:
                Rules(training, values, walker, report.schemes, trainers).check()
                report.values = values
    except TooManyErrors:
        pass  # _enough says so
    # A value that could not be read is wrong once.
    unread = {(f.line, f.column) for f in report.findings}
    report.findings = _enough(report.findings + [f for f in walker.findings if (f.line, f.column) not in unread])


def _check_paths(root: Node, walker: Walker) -> None:
    """Potato's own keys by which we find files and items: only that they can be such at all."""
    files, properties = root.get("data_files"), root.get("item_properties") or root
    below = "item_properties." if properties is not root else ""
    named = [(key, root.get(key), "a path") for key in ("task_dir", "output_annotation_dir")]
    named += [(below + key, properties.get(key), "the name of a field") for key in ("id_key", "text_key")]
    for i, entry in enumerate(files.elements() if files else ()):
        named.append((f"data_files[{i}]", entry.get("path") or entry, "a path"))
    for path, node, what in named:
        if node is None:
            continue
        if node.kind != SCALAR:
            kind = "a list" if node.kind == SEQUENCE else "a mapping"
            walker.say(node, path, f"{path} is {kind}, where {what} is expected")
        elif not (node.text() or "").isprintable():
            walker.say(node, path, f"{path} holds a control character", f"write {what} on one line")


def acknowledged(report: Report, potato_checked: bool = False) -> Report:
    """The same report with the block ``validation`` checked and its acknowledge applied to the warnings."""
    if report.root is not None:
        block = report.root.get("validation")
        if block is not None:
            walker = Walker(config_schema())
            walker.walk(block, walker.root["properties"]["validation"], "validation", "validation")
            report.findings += walker.findings
        report.findings, report.acknowledged = acknowledge.apply(report.root, report.findings, potato_checked)
        report.findings.sort(key=_order)
    return report


def _order(finding: Finding) -> tuple[int, int]:
    return finding.line, finding.column
