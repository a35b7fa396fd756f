"""``potato training labels``: what there is to learn from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from .common import add_config, say, say_json, table
from .scores import agreement

HELP = """\
Says what there is to learn from: items, answers, how often each label was given, how far people agree, and how
likely each of them is right by the consensus of all. Nothing is trained or written.

  potato training labels
  potato training labels study/config.yaml --json
"""
#: A large project has millions of answers: garbage is collected.
LASTING = True


def configure(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def run(args: argparse.Namespace) -> int:
    from ..project.overview import summary
    from .run import checked

    found = summary(checked(args.config), joined=True)
    if args.json:
        say_json(found)
        return 0
    machines = found["machine_annotators"]
    say(f"{found['items']:,} items, {found['annotated']:,} of them annotated, {_many(found['annotators'], 'annotator')}"
        + (f"; {_many(machines, 'machine')} left out" if machines else ""))
    for warning in found["warnings"]:
        say(f"warning: {warning}")
    for name, scheme in found["schemes"].items():
        say(f"\n{name} ({scheme['annotation_type']})")
        say(_scheme(scheme))
    return 0


def _scheme(scheme: Mapping[str, Any]) -> str:
    if not scheme["kind"]:
        return "nothing can train it"
    if not scheme["annotations"]:
        return "no labels yet"
    people = scheme["people"]
    labels = [["label", "answers"], *([label, str(n)] for label, n in scheme["labels"].items())]
    annotators = [["annotator", "answers", "right by the consensus"]]
    annotators += [[who, str(one["annotations"]), f"{one['with_consensus']:.3f}"] for who, one in people.items()]
    ties = f"; {_many(scheme['ties'], 'tie')} drawn by lot" if scheme["ties"] else ""
    head = agreement({**scheme, "annotators": len(people)}) + ties
    return "\n\n".join((head, table(labels), table(annotators)))


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"
