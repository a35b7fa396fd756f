"""A checked config: what every other room gets to see of config.yaml."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .check import BUILTIN_NAMES, Report, check, config_schema
from .errors import UserError
from .findings import ERROR, NOTE, WARNING, Finding
from .nodes import Node, plain_value
from .report import line_of
from .scalars import TRUES
from .schemes import KINDS
from .walk import Walker


@dataclass(frozen=True, eq=False)
class Scheme:
    """One annotation scheme. ``kind`` is None when nothing can train it; ``labels`` keep its order."""

    name: str
    annotation_type: str
    kind: str | None
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Backend:
    """One place to run. ``keys`` has every key that the type takes, in the schema's order, without ``type``:
    the value given, else the default, else None. ``gpus`` is one text: auto, none, or numbers joined by commas.
    The ``local`` backend has none.
    """

    name: str
    type: str
    keys: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Config:
    """A config without errors.

    ``raw`` is the whole document as mappings, lists and texts: scalars are the text that was written (`true`,
    `12:00:00`, `007`), an unquoted null is None. ``training`` has every key of model_training but ``backends``,
    with defaults, in its type. Paths are absolute.
    """

    path: Path
    sha256: str
    raw: Mapping[str, Any]
    training: Mapping[str, Any]
    backends: Mapping[str, Backend]
    schemes: tuple[Scheme, ...]
    task_dir: Path
    data_files: tuple[Path, ...]
    id_key: str
    text_key: str
    output_dir: Path
    machine_annotators: tuple[str, ...]
    task_name: str = ""
    debug: bool = False

    def scheme(self, name: str) -> Scheme | None:
        return next((s for s in self.schemes if s.name == name), None)


@dataclass(frozen=True, eq=False)
class Checked:
    """``config`` is None exactly when there are errors."""

    config: Config | None
    findings: tuple[Finding, ...]

    def _level(self, level: str) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.level == level)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return self._level(ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return self._level(WARNING)

    @property
    def notes(self) -> tuple[Finding, ...]:
        return self._level(NOTE)


class ConfigError(UserError):
    """The config has errors. The message is what `potato validate` prints of them, one a line."""

    def __init__(self, findings: Iterable[Finding], path: str):
        self.findings = tuple(findings)
        self.path = path
        super().__init__("\n".join(line_of(path, f) for f in self.findings if f.level == ERROR))


def load(path: str | Path, *, trainers: Mapping[str, Any] | Iterable[str] = BUILTIN_NAMES) -> Checked:
    """Reads and checks ``path``. Never raises for a bad file: the findings say what is wrong.

    ``trainers`` is the catalogue, name -> something with ``params_schema``, or the names alone.
    Warnings that validation.acknowledge names are among the findings: only `potato validate` reads that block.
    """
    report = check(str(path), trainers if isinstance(trainers, Mapping) else tuple(trainers))
    return Checked(None if report.of(ERROR) else config_of(report), tuple(report.findings))


def load_or_raise(path: str | Path, *, trainers: Mapping[str, Any] | Iterable[str] = BUILTIN_NAMES) -> Config:
    """The checked config of ``path``; ConfigError carrying the findings when it has errors."""
    checked = load(path, trainers=trainers)
    if checked.config is None:
        raise ConfigError(checked.findings, str(path))
    return checked.config


def config_of(report: Report) -> Config:
    """The config of a report without errors."""
    import hashlib

    root = report.root
    assert root is not None
    where = Path(os.path.abspath(report.path))  # noqa: PTH100 - a link to a config keeps its own place
    walker = Walker(config_schema())
    defs = walker.root["$defs"]
    training = walker.filled(report.values, defs["model_training"])
    entries = training.pop("backends") or {}
    backends = {"local": Backend("local", "local", {})}
    for name, values in entries.items():
        keys = walker.filled(values, defs[values["type"]])
        backends[name] = Backend(name, keys.pop("type"), keys)
    task_dir = Path(os.path.realpath(_below(where.parent, _text(root, "task_dir") or ".")))
    properties = root.get("item_properties") or root
    return Config(
        path=where, sha256=hashlib.sha256(report.data).hexdigest(), raw=plain_value(root), training=training,
        backends=backends,
        schemes=tuple(Scheme(s.name, s.annotation_type, KINDS.get(s.annotation_type), s.labels)
                      for s in report.schemes),
        task_dir=task_dir,
        data_files=tuple(_below(task_dir, text) for text in _data_files(root)),
        id_key=_text(properties, "id_key") or "id", text_key=_text(properties, "text_key") or "text",
        output_dir=_below(task_dir, _text(root, "output_annotation_dir") or "annotation_output"),
        machine_annotators=_machines(root),
        task_name=_text(root, "annotation_task_name") or "",
        debug=_text(root, "debug") in TRUES,
    )


def _below(directory: Path, text: str) -> Path:
    """``text`` as a path on this machine: `~` is the home directory, a relative one starts at ``directory``."""
    return Path(os.path.abspath(directory / os.path.expanduser(text)))  # noqa: PTH100, PTH111 - keeps links, never raises


def _text(node: Node, key: str) -> str | None:
    value = node.get(key)
    return value.text() if value is not None else None


def _elements(node: Node, key: str) -> list[Node]:
    value = node.get(key)
    if value is None:
        return []
    return value.elements() if value.kind == "sequence" else [value]


def _machines(root: Node) -> tuple[str, ...]:
    """User names of declared machines: Potato reads them only when the block says `enabled: true`."""
    block = root.get("machine_annotators")
    if block is None or block.kind != "mapping" or _text(block, "enabled") not in TRUES:
        return ()
    return tuple(name for entry in _elements(block, "annotators") if (name := _text(entry, "id")))


def _data_files(root: Node) -> list[str]:
    named = []
    for entry in _elements(root, "data_files"):
        text = entry.text() or _text(entry, "path")
        if text:
            named.append(text)
    return named
