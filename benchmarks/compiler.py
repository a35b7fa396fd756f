#!/usr/bin/env python3
"""Cold start of `potato compile`, and scripts a second in one process.

    python benchmarks/compiler.py [--python PY] [--rounds 25] [--runs 10000]

Cold start: CPU time and peak memory of `potato compile --backend cluster` on the tutorial's config, in turn with
`python -c pass`, `import jinja2` and `potato validate`, under an interpreter that has the installed wheel (--python;
bytecode must be there). Medians of ratios taken round by round.

Rendering: distinct runs compiled from request to job.sh, in turn with a bare Jinja environment (kept, no filters of
ours, nothing quoted) that renders the same template with the same values.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = Path(__file__).parents[1] / "tests" / "golden" / "compiler" / "tutorial.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the installed wheel")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--runs", type=int, default=10_000)
    args = parser.parse_args()
    cold_start(args.python, args.rounds)
    rendering(args.runs)


def cold_start(python: str, rounds: int) -> None:
    potato = str(Path(python).with_name("potato"))
    commands = {
        "pass": [python, "-c", "pass"],
        "import jinja2": [python, "-c", "import jinja2"],
        "potato validate": [potato, "validate", str(CONFIG)],
        "potato compile": [potato, "compile", str(CONFIG), "--backend", "cluster"],
    }
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    seen: dict[str, list[float]] = {name: [] for name in commands}
    memory: dict[str, int] = {}
    for _ in range(rounds + 1):     # the first round warms the file cache and is not counted
        for name, argv in commands.items():
            child = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, cwd=tempfile.gettempdir())
            _, status, usage = os.wait4(child.pid, 0)
            if status:
                raise SystemExit(f"{argv} failed")
            seen[name].append(usage.ru_utime + usage.ru_stime)
            memory[name] = usage.ru_maxrss
    for name, times in seen.items():
        ratio = statistics.median(t / p for t, p in zip(times[1:], seen["pass"][1:], strict=True))
        middle = statistics.median(times[1:]) * 1e3
        print(f"{name:16} {ratio:6.2f} x pass   {middle:6.1f} ms   {memory[name] / 1024:5.1f} MiB")


def rendering(runs: int) -> None:
    import jinja2
    from potato_training.compiler import RunRequest, compile_run
    from potato_training.compiler.jobspec import job_spec
    from potato_training.compiler.quoting import FILTERS
    from potato_training.compiler.scripts import template_text
    from potato_training.schema.config import load_or_raise

    config = load_or_raise(CONFIG)
    bare = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        comment_start_string="{##", comment_end_string="##}", auto_reload=False)
    bare.filters = dict.fromkeys(FILTERS, lambda value: value)
    template = bare.get_template("sbatch/job.sh.j2")
    spec = job_spec(config, RunRequest("r", "cluster", "sklearn-text", ("sentiment",)), version="1")
    ours, theirs, block = 0.0, 0.0, 500
    made = set()
    for first in range(0, runs, block):
        start = time.process_time()
        texts = []
        for n in range(first, first + block):
            run = compile_run(config, RunRequest(f"r-{n}", "cluster", "sklearn-text", ("sentiment",)), version="1")
            texts.append(run.files["job.sh"])
        middle = time.process_time()
        bare_texts = [template.render(job=spec, place=spec.place) for _ in range(block)]
        ours, theirs = ours + middle - start, theirs + time.process_time() - middle
        made.update(texts)
        assert len(bare_texts) == len(texts)
    assert len(made) == runs
    print(f"{runs} distinct runs: {runs / ours:,.0f} a second, {theirs / ours:.2f} of a bare render")


if __name__ == "__main__":
    main()
