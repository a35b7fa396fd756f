"""``potato training show``: one run's record."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .common import full_disk, say, say_json, task_dir, took, when
from .scores import published, scores

if TYPE_CHECKING:
    from ..runtime.store import Run, Store

HELP = """\
Shows everything recorded of a run: what was asked, where it ran, how it ended, its scores. RUN is the run's
id, the beginning of one, or "last".

  potato training show last
  potato training show 20261130-0915 study/config.yaml --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser, nargs="?", default="last")
    parser.add_argument("--json", action="store_true", help="the whole record as JSON")


def add_run(parser: argparse.ArgumentParser, **optional: Any) -> None:
    """The run and its project. Commands that only look go without a name to the last one."""
    words = 'a run id, the beginning of one, or "last"' + ("; default: last" if optional else "")
    parser.add_argument("run", metavar="RUN", help=words, **optional)
    parser.add_argument("config", nargs="?", default="config.yaml", metavar="CONFIG", help="default: config.yaml")


def config_alone(args: argparse.Namespace) -> None:
    """`show study/config.yaml`: of two arguments that may both be left out, it is plain which one this is."""
    if args.config == "config.yaml" and args.run.endswith((".yaml", ".yml")):
        args.run, args.config = "last", args.run


def run(args: argparse.Namespace) -> int:
    from ..runtime import lookup
    from ..runtime.places import Places
    from ..runtime.slurm.words import job_words
    from .runs import ran_on, record

    config_alone(args)
    where = Places(task_dir(args.config))
    store = lookup.open_store(where.task_dir)
    found = lookup.find(store, args.run)
    if args.json:
        say_json(record(found))
        return 0
    facts = found.facts
    rows: list[tuple[str, Any]] = [
        ("run", found.run_id), ("status", found.state), ("reason", found.reason), ("", found.hint),
        ("connection", "" if found.over else _connection(facts)), ("", _release(store, found.run_id)),
        ("", "" if found.over else full_disk(where.root)), ("step", found.step),
        ("trainer", found.trainer), ("schemas", ", ".join(found.schemas)),
        ("params", ", ".join(f"{k}={v}" for k, v in found.params.items())), ("ran on", ran_on(found)),
        ("job", job_words(facts)),
        ("started by", f"{found.started_by} ({found.trigger})"), ("queued", when(found.created)),
        ("started", when(found.started)), ("ended", when(found.ended)), ("took", took(found)),
        ("items", ", ".join(f"{n} {name}" for name, n in (facts.get("splits") or {}).items())),
        ("bundle", (facts.get("bundle") or {}).get("digest")), ("config", (facts.get("config_sha256") or "")[:16]),
        ("packages", ", ".join(f"{k} {v}" for k, v in (facts.get("software") or {}).items())),
        ("times", _phases(facts.get("timings") or {}, found.ended)),
        ("prelabels", published(facts.get("writeback"))),
        ("files", str(where.run_dir(found.run_id))), ("repeat", _command(found, args.config)),
    ]
    say("\n".join(f"{name:<11} {value}" for name, value in rows if value))
    for warning in facts.get("warnings") or []:
        say(f"warning     {warning}")
    text = scores(facts, where.manifest(found.run_id))
    if text:
        say("\n" + text)
    return 0


def _command(found: Run, config: str) -> str:
    """What starts the same again; the labels and the config are today's."""
    import json
    import shlex

    from .main import called

    words = [called(), "training", "run", *([config] if config != "config.yaml" else []), "--backend", found.backend,
             "--trainer", found.trainer, "--schemas", ",".join(found.schemas)]
    for name, value in found.params.items():
        words += ["--param", f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"]
    return shlex.join(words)


def _connection(facts: Mapping[str, Any]) -> str:
    """Only what is wrong with it: a connection that stands is nothing to tell."""
    known = facts.get("connection") or {}
    told = "; ".join(filter(None, (known.get("why"), known.get("hint"))))
    return "" if known.get("up", True) else f"lost since {when(known.get('since'))}: {told}"


def _release(store: Store | None, run_id: str) -> str:
    """What an ended run still holds elsewhere."""
    open_ones = [r for r in store.releases() if r.run_id == run_id and r.tries] if store else []
    return "".join(f"still to be released: {release.last_error}" for release in open_ones)


def _phases(timings: dict[str, float], ended: float | None) -> str:
    marks = sorted(timings.items(), key=lambda item: item[1])
    return ", ".join(
        f"{name} {after - at:.1f} s" for (name, at), (_, after) in pairwise(marks)
    )
