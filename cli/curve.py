"""``potato training curve``: would more labels make a better model?"""

from __future__ import annotations

import argparse
import signal
from typing import Any

from .common import add_config, named, say, say_json, table

HELP = """\
Trains on 25, 50, 75 and 100 % of the labels, each time on this machine, and says whether more labels still pay:
what the last quarter of them brought, with a 95 % interval. The parts are nested and the held-out items are the
same for all. Nothing is published and no run is recorded; the curve is kept in training/curve.json, and the
pages of this trainer's runs draw it.

  potato training curve config.yaml --trainer sklearn-text
  potato training curve --schemas sentiment --json
"""
#: It goes on for long: garbage is collected.
LASTING = True


def configure(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--trainer", metavar="T", help="default: sklearn-text")
    parser.add_argument("--schemas", metavar="A,B", default="", help="default: those of writeback, else all trainable")
    parser.add_argument("--param", metavar="K=V", action="append", default=[], help="a parameter of the trainer")
    parser.add_argument("--json", action="store_true", help="the curve as JSON")


def run(args: argparse.Namespace) -> int:
    from ..runtime import curve, earlier, request
    from ..runtime.submit import require_enabled
    from .run import checked

    config = checked(args.config)
    require_enabled(config)
    info = request.chosen_trainer(args.trainer)
    if info.name == earlier.NAME:
        raise request.RequestError("trainer", f"{info.name} trains nothing: it has no curve", "name another trainer")
    schemas = request.chosen_schemas(config, info, named(args.schemas))
    params = request.checked_params(info, request.written_params(info, args.param))
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # under nohup it goes on
            signal.signal(number, _leave)
    found = curve.make(config, info.name, schemas, params, (lambda line: None) if args.json else say)
    if args.json:
        say_json(found)
    else:
        for name, one in found["schemas"].items():
            say(f"\n{name}\n{_table(one)}\n\n{one['words']}")
    return 0


def _leave(number: int, frame: object) -> None:
    """The training is ended and its folder removed on the way out."""
    raise SystemExit(128 + number)


def _table(one: Any) -> str:
    rows = [["labels", "train items", "accuracy", "95 % interval", "macro-F1"]]
    for p in one["points"]:
        f1 = "-" if p["macro_f1"] is None else f"{p['macro_f1']:.3f}"
        interval = f"{p['low']:.3f} to {p['high']:.3f}"
        rows.append([f"{p['share']:.0%}", str(p["train"]), f"{p['accuracy']:.3f}", interval, f1])
    return table(rows)
