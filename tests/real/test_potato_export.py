"""Labels and agreement as Potato's own export counts them, with the released Potato as a program of its own.

It is GPL-licensed and never imported here (conftest.py says where it comes from).
"""

import csv
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from potato_training.project import build_bundle, summary
from potato_training.project.annotations import read_annotations
from potato_training.schema.config import load_or_raise

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROJECTS = {
    "review-project": ROOT / "tests/fixtures/projects/review-project",
    "multi-project": ROOT / "tests/fixtures/projects/multi-project",
    "examples/reviews": ROOT / "examples/reviews",
}


@pytest.fixture(scope="module", params=PROJECTS)
def exported(request, potato_python, tmp_path_factory):
    """(our config, records of Potato's jsonl export, rows of its reliability export) of one project."""
    folder = tmp_path_factory.mktemp("export") / "project"
    shutil.copytree(PROJECTS[request.param], folder)
    # The thousand samples of alpha's interval, which nothing here looks at, would take a minute.
    for kind, more in (("jsonl", ()), ("reliability", ("--option", "bootstrap=2"))):
        done = subprocess.run(
            [potato_python, "-m", "potato.export", "-c", "config.yaml", "-f", kind, "-o", "out", *more],
            cwd=folder, capture_output=True, text=True, timeout=300,
        )
        assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (folder / "out/annotations.jsonl").read_text().splitlines()]
    with (folder / "out/reliability.csv").open(newline="") as file:
        rows = {row["schema"]: row for row in csv.DictReader(file)}
    return load_or_raise(folder / "config.yaml"), records, rows


def exported_labels(record, scheme):
    """The labels of one scheme in one record: a select's are values, the others' names."""
    pairs = record["labels"].get(scheme.name, {})
    return sorted(pairs.values() if scheme.annotation_type == "select" else pairs)


def test_every_answer_is_the_one_that_potato_exports(exported):
    config, records, _ = exported
    schemes = [scheme for scheme in config.schemes if scheme.kind]
    found = read_annotations(config, schemes)
    assert records and schemes
    for scheme in schemes:
        votes = found.votes[scheme.name]
        ours = {
            (item, found.people[annotator]): sorted(scheme.labels[k] for k in votes.values[code])
            for item, number in found.items.items()
            for annotator, code in votes.pattern(votes.node(number))
        }
        theirs = {
            (record["instance_id"], record["user_id"]): labels
            for record in records
            if (labels := exported_labels(record, scheme))
        }
        assert ours == theirs, scheme.name


def test_label_counts_are_those_of_the_export(exported):
    config, records, _ = exported
    told = summary(config)
    for scheme in config.schemes:
        if scheme.kind:
            theirs = Counter(label for record in records for label in exported_labels(record, scheme))
            ours = told["schemes"][scheme.name]["labels"]
            assert {label: n for label, n in ours.items() if n} == theirs, scheme.name
    assert told["annotators"] == len({record["user_id"] for record in records})


def test_krippendorffs_alpha_is_the_one_that_potato_reports(exported, tmp_path):
    config, _, reliability = exported
    names = [scheme.name for scheme in config.schemes if scheme.kind]
    manifest = build_bundle(config, names, tmp_path / "b.tar.gz").manifest
    compared = 0
    for scheme in config.schemes:
        # for multilabel Potato reports alpha with another distance (MASI)
        if scheme.kind in ("nominal", "ordinal"):
            ours = manifest["aggregation"]["per_schema"][scheme.name]
            theirs = reliability[scheme.name]
            assert ours["alpha"] == pytest.approx(float(theirs["alpha"]), abs=6e-4), scheme.name
            assert ours["shared_items"] == int(theirs["units"])
            compared += 1
    assert compared
