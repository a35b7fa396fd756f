"""``potato training run``: one run from the terminal, to its end."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import Any

from ..worker.protocol import SUCCEEDED
from .common import add_config, named, say
from .main import as_called
from .scores import published, scores

HELP = """\
Trains a model from the project's annotations and shows its progress. Ctrl-C cancels the run properly;
a second Ctrl-C stops watching. The run itself is looked after by the project's supervisor: closing the
terminal does not end it.

  potato training run config.yaml --trainer sklearn-text
  potato training run --backend local --schemas sentiment,topics --param max_features=50000
"""
#: It goes on for long: garbage is collected.
LASTING = True


def configure(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--backend", metavar="NAME", help="where to run; default: model_training.backend")
    parser.add_argument("--trainer", metavar="T", help="default: sklearn-text")
    parser.add_argument("--schemas", metavar="A,B", default="", help="default: those of writeback, else all trainable")
    parser.add_argument("--param", metavar="K=V", action="append", default=[], help="a parameter of the trainer")


def run(args: argparse.Namespace) -> int:
    from ..runtime import request
    from ..runtime.places import Places
    from ..runtime.store import Store
    from ..runtime.submit import submit
    from .watch import watch

    config = checked(args.config)
    schemas = named(args.schemas)
    params = request.written_params(request.chosen_trainer(args.trainer), args.param)
    submitted = submit(config, trainer=args.trainer, schemas=schemas, backend=args.backend, params=params)
    where = Places(config.task_dir)
    store = Store(where.store)
    say(f"run {submitted.run_id}: {submitted.trainer} on {submitted.backend}, schemas {', '.join(submitted.schemas)}")
    signal.signal(signal.SIGTERM, lambda *_: _leave(submitted.run_id))
    interrupted = watch(store, where, submitted.run_id)
    ended = store.get(submitted.run_id)
    if ended is None or not ended.over:
        return 130
    tell_end(ended, where)
    if interrupted:
        return 130
    return 0 if ended.state == SUCCEEDED else 1


def checked(path: str) -> Any:
    """The config, with its warnings on stderr; ConfigError with every finding when it has errors."""
    from ..runtime.trainers import Nameable
    from ..schema.config import ConfigError, load
    from ..schema.report import line_of

    result = load(path, trainers=Nameable())
    if result.config is None:
        raise ConfigError(result.errors + result.warnings, path)
    for finding in result.warnings:
        print(line_of(path, finding), file=sys.stderr)
    return result.config


def tell_end(run: Any, where: Any) -> None:
    """The end of a run for a person: why, how good, and where everything is."""
    say()
    say(f"{run.state}: {run.reason}" if run.reason and run.reason != run.state else run.state)
    if run.hint:
        say(f"  {run.hint}")
    for warning in run.facts.get("warnings") or []:
        say(f"  warning: {warning}")
    if run.state != SUCCEEDED:
        say(f"  log: {where.run_dir(run.run_id) / 'run.log'}")
        return
    say()
    say(scores(run.facts, where.manifest(run.run_id)))
    say()
    run_dir = where.run_dir(run.run_id)
    say(f"model        {run_dir / 'artifacts'}")
    say(f"predictions  {run_dir / 'predictions.jsonl'}")
    report = run.facts.get("writeback")
    if report:
        say(f"prelabels    {where.prelabels}: {published(report)}")
        for note in report.get("notes") or []:
            say(f"             {note}")


def _leave(run_id: str) -> None:
    say(as_called(f"\nthe run goes on; potato training logs {run_id} -f follows it"))
    raise SystemExit(128 + signal.SIGTERM)
