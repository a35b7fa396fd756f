"""What people said: annotation_output/*/user_state.json of a project, joined scheme by scheme."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..schema.config import Config, Scheme
from ..schema.errors import UserError
from .history import from_changes, from_history
from .items import shown_path
from .states import BEHAVIOUR, LABELS, SPANS, State, open_state, seeded, triples
from .votes import Votes

#: Names under which a single-choice scheme keeps a text beside the choice.
BESIDE = frozenset({"free_response"})
MACHINES = frozenset({"tool", "llm"})

Check = Callable[[], None]


@dataclass
class Annotations:
    """Answers of all people to the wanted schemes, by scheme name.

    ``items`` numbers the items that have an answer, one that is left out included; ``people`` are the annotators'
    folder names, by their number. Neither knows whether an item is still in the data files.
    """

    votes: dict[str, Votes]
    items: dict[str, int] = field(default_factory=dict)
    people: list[str] = field(default_factory=list)
    machines: int = 0
    warnings: list[str] = field(default_factory=list)


def read_annotations(
    config: Config, schemes: Sequence[Scheme], *, check: Check = lambda: None
) -> Annotations:
    """Reads every annotator's state, one after the other, in constant memory but for the answers.

    Machine annotators are left out (counted). Raises UserError: annotations kept in a database, a state
    that cannot be read.
    """
    found = Annotations({scheme.name: Votes(scheme) for scheme in schemes})
    leave_out = config.training["confirmed_prelabels"] == "leave_out"
    for name, folder, state in _people(config, found):
        _Reader(found, folder, len(found.people), check, leave_out).read(state)
        found.people.append(name)
    return found


def labelled_items(config: Config, *, check: Check = lambda: None) -> set[str]:
    """Ids of the items that a person has labelled, in whatever scheme, spans included."""
    labelled: set[str] = set()
    for _, _, state in _people(config, Annotations({})):
        for section in (LABELS, SPANS):
            for n, (item, stored) in enumerate(state.section(section)):
                if n % 1000 == 0:
                    check()
                if triples(stored) if section == LABELS else stored:
                    labelled.add(item)
    return labelled


def _people(config: Config, found: Annotations) -> Iterator[tuple[str, Path, State]]:
    """The states of the people, by folder name. Counts the machines left out and warns of unknown kinds."""
    database = config.raw.get("database")
    if isinstance(database, dict) and str(database.get("type", "")).lower() == "mysql":
        raise UserError(
            "the annotations are kept in a MySQL database, which is not read",
            "use a project that keeps them in files (no `database:` of type mysql)",
        )
    for folder in _folders(config):
        shown = shown_path(config, folder / "user_state.json")
        state = open_state(folder / "user_state.json", shown)
        if state is None:
            continue
        try:
            kind = _kind_of(state.origin)
            if folder.name in config.machine_annotators or kind != "human":
                found.machines += 1
                if kind not in MACHINES and kind != "human":
                    found.warnings.append(
                        f'{shown}: annotator type "{kind}" is not known; left out like a machine\'s'
                    )
                continue
            yield folder.name, folder, state
        finally:
            state.close()


def _folders(config: Config) -> list[Path]:
    """Folders with a state in them, by name. Others (pocket, training, ...) are none of ours."""
    try:
        with os.scandir(config.output_dir) as entries:
            folders = [Path(entry.path) for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        shown = shown_path(config, config.output_dir)
        raise UserError(f"{shown} cannot be read: {error.strerror}") from None
    return sorted((f for f in folders if (f / "user_state.json").is_file()), key=lambda f: f.name)


def _kind_of(origin: Any) -> str:
    """Absent means a person; present but unreadable does not, since it can only keep a machine out."""
    if not origin:
        return "human"
    kind = origin.get("kind") if isinstance(origin, dict) else None
    return kind.strip().lower() if isinstance(kind, str) and kind.strip() else "unreadable"


class _Reader:
    """Takes one person's state into the votes."""

    def __init__(self, found: Annotations, folder: Path, number: int, check: Check, leave_out: bool):
        self.found, self.folder, self.number, self.check = found, folder, number, check
        self.doubts: dict[tuple[str, str], frozenset[str]] = {}
        self.seeds: dict[str, dict[str, frozenset[str]]] = {}
        self.leave_out = leave_out

    def read(self, state: State) -> None:
        self._read_seeds(state)
        votes = self.found.votes
        for n, (item, stored) in enumerate(state.section(LABELS)):
            if n % 1000 == 0:
                self.check()
            said: dict[str, set[str]] = {}
            for schema, name, value in triples(stored):
                if schema in votes and name not in BESIDE:
                    # a select keeps its label as the value, every other scheme as the name
                    select = votes[schema].scheme.annotation_type == "select"
                    said.setdefault(schema, set()).add(str(value) if select else name)
            for schema, labels in said.items():
                if len(labels) > 1 and votes[schema].scheme.kind != "multilabel":
                    self.doubts[item, schema] = frozenset(labels)
                else:
                    self._answer(item, schema, labels)
        if self.doubts:
            self._settle(state)

    def _answer(self, item: str, schema: str, labels: set[str]) -> None:
        votes = self.found.votes[schema]
        code = votes.code(labels)
        if code is None:
            return
        number = self.found.items.setdefault(item, len(self.found.items))
        seeds = self.seeds.get(item)
        confirms = seeds is not None and seeds.get(schema) == labels
        if confirms:
            votes.confirmed.append(number)
        if not (confirms and self.leave_out):
            votes.add(number, self.number, code)

    def _read_seeds(self, state: State) -> None:
        for n, (item, data) in enumerate(state.section(BEHAVIOUR)):
            if n % 1000 == 0:
                self.check()
            seeds = data.get("pre_annotation_seeds") if isinstance(data, dict) else None
            if isinstance(seeds, dict) and seeds:
                self.seeds[item] = {s: seeded(seeds[s]) for s in seeds if s in self.found.votes}

    def _settle(self, state: State) -> None:
        """Two answers where one is possible: the history knows the last; else the item is left out."""
        settled = from_history(self.folder / "annotation_history.jsonl", self.doubts)
        rest = {key: labels for key, labels in self.doubts.items() if key not in settled}
        if rest:
            settled |= from_changes(state.section(BEHAVIOUR), rest)
        for (item, schema), _ in self.doubts.items():
            label = settled.get((item, schema))
            if label is None:
                self.found.votes[schema].unresolved += 1
            else:
                self._answer(item, schema, {label})
