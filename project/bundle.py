"""The bundle: a run's items and labels as one archive that says everything a worker needs.

The format is described in docs/bundle.md and schema/bundle.schema.json.
"""

from __future__ import annotations

import difflib
import io
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..schema.config import Config, Scheme
from ..schema.errors import UserError
from .aggregate import Joined
from .annotations import Annotations, Check, read_annotations
from .archive import Member, write_archive
from .items import shown_path
from .manifest import manifest_of
from .spool import PARTS, Label, Progress, Spool


@dataclass(frozen=True)
class Bundle:
    """A written bundle. ``size`` is the archive's in bytes, ``sha256`` that of the uncompressed tar."""

    manifest: dict[str, Any]
    size: int
    sha256: str
    warnings: tuple[str, ...]


def trainable(config: Config, names: Sequence[str]) -> tuple[Scheme, ...]:
    """The schemes of these names, each once. Raises UserError: none named, unknown, not trainable."""
    can = [scheme.name for scheme in config.schemes if scheme.kind]
    hint = f"schemes that can be trained: {', '.join(can)}" if can else "no scheme of this project can be"
    if not names:
        raise UserError("no annotation scheme to train on was named", hint)
    found = []
    for name in dict.fromkeys(names):
        scheme = next((s for s in config.schemes if s.name == name), None)
        if scheme is None:
            near = difflib.get_close_matches(name, [s.name for s in config.schemes], 1)
            better = f'; did you mean "{near[0]}"?' if near else ""
            raise UserError(f'no annotation scheme is called "{name}"{better}', hint)
        if scheme.kind is None:
            raise UserError(f"{name}: a {scheme.annotation_type} scheme cannot be trained", hint)
        if len(scheme.labels) < 2:
            raise UserError(f"{name}: the scheme has {len(scheme.labels)} labels; at least 2 are needed")
        found.append(scheme)
    return tuple(found)


def build_bundle(
    config: Config,
    schemas: Sequence[str],
    archive: Path,
    *,
    check: Check = lambda: None,
    on_progress: Progress = lambda phase, done: None,
) -> Bundle:
    """Writes the bundle of a project's annotations to ``archive`` (a tar.gz, mode 0600, by rename).

    ``check`` is called at least every 1,000 items and may raise to stop; then nothing is left behind.
    Raises UserError, naming the scheme, when there is nothing to learn from: no labels, one class only,
    an empty train split; and for what read_items, read_annotations and trainable refuse.
    """
    schemes = trainable(config, schemas)
    on_progress("annotations", 0)
    annotations = read_annotations(config, schemes, check=check)
    for scheme in schemes:
        if not any(annotations.votes[scheme.name].nodes):
            others = ",".join(s.name for s in schemes if any(annotations.votes[s.name].nodes))
            raise UserError(_no_labels(config, annotations, scheme),
                            f"to train on the schemes that have labels: --schemas {others}" if others else "")
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=archive.parent) as folder:
        spool = Spool(Path(folder), config, annotations, check, on_progress)
        try:
            spool.take_items()
            joined = spool.join_labels(schemes)
            for scheme in schemes:
                name = scheme.name
                _refuse_unlearnable(scheme, joined[name], spool.counts[name], spool.train[name])
            warnings = _warnings(annotations, spool, joined)
            manifest = manifest_of(config, schemes, annotations, spool, joined)
            data = (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode()
            members: list[Member] = [("manifest.json", io.BytesIO(data), len(data))]
            members += [(f"{part}.jsonl", *spool.parts[part].read()) for part in PARTS]
            on_progress("packing", spool.items)
            size, digest = write_archive(archive, members, check)
        finally:
            spool.close()
    return Bundle(manifest, size, digest, warnings)


def _no_labels(config: Config, annotations: Annotations, scheme: Scheme) -> str:
    confirmed = annotations.votes[scheme.name].confirmed
    if confirmed:
        return (
            f"{scheme.name}: all {len(confirmed)} answers only confirm a prelabel, and "
            "model_training.confirmed_prelabels is leave_out"
        )
    where = shown_path(config, config.output_dir)
    unknown = annotations.votes[scheme.name].unknown
    if unknown:
        names = ", ".join(f'"{label}"' for label, _ in unknown.most_common(3))
        return f"{scheme.name}: no labels in {where} that the scheme has; found were {names}"
    if not annotations.people and annotations.machines:
        return f"{scheme.name}: no labels in {where}: all {annotations.machines} annotators are machines"
    return f"{scheme.name}: no labels in {where} yet ({_many(len(annotations.people), 'annotator')})"


def _refuse_unlearnable(
    scheme: Scheme, joined: Joined, counts: Counter[Label], train: Counter[Label]
) -> None:
    n = joined.facts["annotations"]
    if not counts:
        raise UserError(f"{scheme.name}: every annotated item is missing from the data files, or has no text")
    if len(counts) == 1:
        label = _shown(counts)
        raise UserError(
            f'{scheme.name}: all {n} annotations are "{label}"; at least 2 labels are needed'
            if joined.facts["disagreements"] == 0
            else f'{scheme.name}: all {sum(counts.values())} items are "{label}" once annotators are joined; '
            "at least 2 labels are needed"
        )
    if not train:
        raise UserError(
            f"{scheme.name}: none of the {sum(counts.values())} labelled items falls into the train split",
            "annotate more items, or give train a larger share (model_training.splits)",
        )
    if len(train) == 1:
        label = _shown(train)
        raise UserError(
            f'{scheme.name}: all {sum(train.values())} items of the train split are "{label}"; '
            "at least 2 labels are needed",
            "annotate more items; the split of an item depends on its id and split_seed only",
        )


def _shown(counts: Counter[Label]) -> str:
    (label,) = counts
    return label if isinstance(label, str) else ", ".join(label)


def _warnings(annotations: Annotations, spool: Spool, joined: dict[str, Joined]) -> tuple[str, ...]:
    warnings = list(annotations.warnings)
    leave_out = spool.config.training["confirmed_prelabels"] == "leave_out"
    if annotations.machines:
        warnings.append(f"{_many(annotations.machines, 'machine annotator')} left out")
    if spool.without.n:
        warnings.append(spool.without.words())
    gone = len(spool.seen) - sum(spool.seen) - spool.unread
    if gone:
        warnings.append(f"{_many(gone, 'annotated item')} left out: not in the data files (any more)")
    if spool.mended:
        warnings.append(f"{_many(spool.mended, 'text')} held half a character, replaced by U+FFFD")
    for name, result in joined.items():
        votes = result.votes
        if leave_out and votes.confirmed:
            answers = _many(len(votes.confirmed), "answer")
            why = "the same as the prelabel that was shown (confirmed_prelabels)"
            warnings.append(f"{name}: {answers} left out: {why}")
        if votes.unresolved:
            warnings.append(
                f"{name}: {_many(votes.unresolved, 'answer')} left out: two labels where one is possible, "
                "and no history that tells which came last"
            )
        if votes.unknown:
            labels = ", ".join(f'"{label}"' for label, _ in votes.unknown.most_common(3))
            warnings.append(
                f"{name}: {_many(sum(votes.unknown.values()), 'answer')} left out: "
                f"labels that the scheme does not have ({labels})"
            )
    return tuple(warnings)


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
