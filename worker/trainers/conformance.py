"""What any trainer must do, tried: python -m potato_training.worker.trainers.conformance NAME [--param K=V]

Standard library only; the trainer's own libraries must be there. ``check(cls, params)`` is the same for tests: it
gives a line for each thing that a run could not bear, none for a trainer that conforms.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from typing import IO, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type

from ..failures import BadSpec, Cancelled, WorkerError
from ..spec import KINDS, check_params
from . import load
from .base import Trainer, TrainerInfo
from .conformance_bench import LABELS, Bench, Findings, Recorder, make_data

PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".bin", ".ckpt", ".npy")
SAME, CLOSE = 1e-9, 2e-3                        # of probabilities: read again; computed in another batch


def check(cls: Type[Trainer], params: Optional[Mapping[str, Any]] = None,
          say: Callable[[str], None] = lambda line: None) -> List[str]:
    """Tries the trainer; a line for each thing that it does not do as it should."""
    findings = Findings(say)
    findings.case("what it says of itself")
    checked = _about(cls, params or {}, findings)
    if checked is None:
        return findings.lines
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(cls, checked, directory, findings)
        for name, case, kind in _cases(cls):
            findings.case(name)
            try:
                case(bench, kind)
            except WorkerError as error:
                findings.add("%s (%s)" % (error.message, error.hint))
            except Cancelled:
                findings.add("it was cancelled though nobody asked for it")
            except KeyboardInterrupt:
                raise
            except SystemExit as error:
                findings.add("it ends the process (SystemExit %s); a TrainerError is how to refuse" % error)
            except BaseException as error:
                findings.add("%s: %s" % (type(error).__name__, error))
    return findings.lines


def _about(cls: Type[Trainer], params: Mapping[str, Any], findings: Findings) -> Optional[Dict[str, Any]]:
    """The parameters with defaults, or None when there is nothing to try."""
    info = getattr(cls, "info", None)
    if not isinstance(info, TrainerInfo):
        findings.add("there is no info, a TrainerInfo")
        return None
    expect = findings.expect
    expect(info.name and info.title and info.description, "info: name, title and description must say something")
    expect(info.kinds and set(info.kinds) <= set(KINDS), "info.kinds: %r, not of %s" % (info.kinds, ", ".join(KINDS)))
    expect(not info.packages or info.install_hint, "info.install_hint must say how to install the packages")
    schema = info.params_schema
    if schema:
        expect(schema.get("type") == "object" and schema.get("additionalProperties") is False,
               "info.params_schema must be of type object with additionalProperties false")
    for name, rule in schema.get("properties", {}).items():
        expect(rule.get("type") and rule.get("description"), "parameter %s needs a type and a description" % name)
        expect("default" in rule or name in schema.get("required", ()), "parameter %s needs a default" % name)
    hidden = "".join("sys.modules[%r] = None\n" % name for name in info.packages)
    done = subprocess.run([sys.executable, "-c", "import sys\n%simport %s" % (hidden, cls.__module__)],
                          capture_output=True, text=True, check=False)
    expect(done.returncode == 0, "its module does not import without its libraries, and so cannot be listed there: %s"
           % (done.stderr.strip().splitlines() or [""])[-1])
    try:
        return check_params(schema, params)
    except BadSpec as error:
        findings.add(error.message)
        return None


def _cases(cls: Type[Trainer]) -> Iterator[Tuple[str, Callable[[Bench, str], None], str]]:
    for kind in cls.info.kinds:
        yield "%s: trained, saved and read again" % kind, _whole, kind
    kind = cls.info.kinds[0]
    yield "the same seed", _again, kind
    yield "few items and none to choose by", _few, kind
    yield "cancelled while it trains", _cancelled, kind
    yield "cancelled while it predicts", _cancelled_later, kind
    yield "stopped and kept", _kept, kind


def _whole(bench: Bench, kind: str) -> None:
    data, run, expect = make_data(kind), Recorder(), bench.findings.expect
    trainer = bench.fitted(kind, data, run)
    scores = bench.scores(trainer, kind, data.rows)
    expect(list(trainer.predict_rows([])) == [], "no items: something else than no rows")
    one = [bench.scores(trainer, kind, [row])[0] for row in data.rows]
    expect(_apart(scores, one) < CLOSE, "an item's scores depend on what is predicted along with it")
    measured = trainer.evaluate(data.val, scores[:len(data.val)])
    expect(measured.get("n") == len(data.val), "evaluate does not count the items")
    expect(not run.odd, "it tells what cannot be passed on: %s" % "; ".join(run.odd[:3]))
    directory = bench.folder()
    trainer.save(directory)
    files = [name for _, _, names in os.walk(directory) for name in names]
    expect(files, "save wrote nothing")
    expect(not [n for n in files if n.endswith(PICKLES)], "save wrote what may be a pickle: %s" % ", ".join(files))
    after = bench.scores(trainer, kind, data.rows)
    expect(_apart(scores, after) < CLOSE, "the scores change when the model is saved")
    loaded = bench.cls.load(directory)
    if bench.cls.loads_to_predict:
        expect(_apart(after, bench.scores(loaded, kind, data.rows)) < CLOSE,
               "the model that was read again predicts otherwise")
    expect(tuple(loaded.task.labels) == LABELS, "the model that was read again has other labels, or another order")


def _again(bench: Bench, kind: str) -> None:
    data = make_data(kind)
    found = [bench.scores(bench.fitted(kind, data), kind, data.rows) for _ in range(2)]
    bench.findings.expect(_apart(*found) <= SAME, "the same seed makes another model")


def _few(bench: Bench, kind: str) -> None:
    """One item a label. A trainer may refuse that, in words; it may not fall."""
    data = make_data(kind, train=3, val=0)
    try:
        trainer = bench.fitted(kind, data)
    except WorkerError as refusal:
        bench.findings.expect(refusal.message, "it refuses without a word")
        return
    bench.scores(trainer, kind, data.rows)


def _cancelled(bench: Bench, kind: str) -> None:
    data, plain = make_data(kind), Recorder()
    bench.fitted(kind, data, plain)
    for at in sorted({1, (plain.checks + 1) // 2, plain.checks} - {0}):
        run = Recorder(stop_at=at)
        try:
            bench.fitted(kind, data, run)
        except Cancelled:
            bench.findings.expect(run.checks == at, "it goes on after a cancel")
        else:
            bench.findings.expect(run.checks < at, "it swallows Cancelled, which run.check() raises")


def _cancelled_later(bench: Bench, kind: str) -> None:
    data, run = make_data(kind), Recorder()
    trainer = bench.fitted(kind, data, run)
    before, run.stop_at = run.checks, 0
    try:
        list(trainer.predict_rows(data.rows))
    except Cancelled:
        return
    bench.findings.expect(run.checks == before, "it swallows Cancelled, which run.check() raises")


def _kept(bench: Bench, kind: str) -> None:
    data, run = make_data(kind), Recorder(keep_at=1)
    bench.scores(bench.fitted(kind, data, run), kind, data.rows)


def _apart(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """The largest difference of two tables of scores; infinite when they have other shapes."""
    if [len(row) for row in one] != [len(row) for row in other]:
        return math.inf
    return max((abs(a - b) for x, y in zip(one, other) for a, b in zip(x, y)), default=0.0)


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m potato_training.worker.trainers.conformance",
                                     description="Tries whether a trainer does what a run needs of it.")
    parser.add_argument("name", help="the trainer, built in or of an installed package")
    parser.add_argument("--param", action="append", default=[], metavar="K=V", help="a parameter of the trainer")
    args = parser.parse_args(argv)
    params = {}
    for text in args.param:
        key, _, value = text.partition("=")
        try:
            params[key] = json.loads(value)
        except ValueError:
            params[key] = value
    try:
        found = _tried_apart(args.name, params)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:                     # the reader (head, less) went away; it is not known to conform
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return 1 if found else 0


def _tried_apart(name: str, params: Mapping[str, Any]) -> List[str]:
    """Tries the trainer in a process of its own and prints what it finds, also when that process is ended by it."""
    with tempfile.TemporaryDirectory() as directory:
        sys.stdout.flush()
        sys.stderr.flush()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(read)
                tempfile.tempdir = directory    # what it leaves when it falls is removed with it
                with os.fdopen(write, "w", encoding="utf-8") as out:
                    _try(name, params, out)
                code = 0
            except KeyboardInterrupt:
                pass
            except BaseException:
                traceback.print_exc()
            finally:
                try:
                    sys.stdout.flush()
                finally:
                    os._exit(code)
        os.close(write)
        case, status = "", 0
        found: Optional[List[str]] = None
        refused: Optional[str] = None
        try:
            with os.fdopen(read, encoding="utf-8") as lines:
                for line in lines:
                    what, told = json.loads(line)
                    if what == "case":
                        case = told
                        print("- %s" % told, flush=True)
                    elif what == "found":
                        found = told
                    else:
                        refused = told
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            status = os.waitpid(pid, 0)[1]
    if refused is not None:
        print(refused, flush=True)
        return [refused]
    if found is None:
        how = "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "exit code %d" % os.WEXITSTATUS(status)
        found = ["%s: it ends the process (%s)" % (case or "imported", how)]
    for line in found:
        print("FAILED %s" % line)
    print("%s %s" % (name, "does not conform" if found else "conforms"), flush=True)
    return found


def _try(name: str, params: Mapping[str, Any], out: IO[str]) -> None:
    def tell(what: str, told: Any) -> None:
        out.write(json.dumps([what, told]) + "\n")
        out.flush()
    try:
        cls = load(name)
    except WorkerError as error:
        tell("refused", "%s (%s)" % (error.message, error.hint) if error.hint else error.message)
        return
    tell("found", check(cls, params, lambda line: tell("case", line)))


if __name__ == "__main__":
    sys.exit(main())
