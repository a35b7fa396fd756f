"""What ssh itself costs, and what a run's steps cost beside it. Needs a host that `ssh HOST true` reaches.

    python benchmarks/ssh.py HOST [--ssh-config FILE] [--megabytes 330] [--python /usr/bin/python3]

Prints ratios of one and the same run: a login up to the running agent over one `ssh HOST true`; the copy of
the code over a bare tar on stdin; a model's way home over `scp -r`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from potato_training.compiler import RunRequest, compile_run
from potato_training.runtime.launchers import Desk
from potato_training.runtime.launchers.ssh import SshLauncher
from potato_training.runtime.ssh import artifacts, code
from potato_training.runtime.ssh.plan import place_facts
from potato_training.runtime.ssh.talk import run_script
from potato_training.runtime.trainers import Trainers
from potato_training.schema.config import load_or_raise


def timed(act: Any, times: int = 5) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def in_turn(floor: Any, ours: Any, fresh: Any, times: int = 11) -> tuple[float, float, float]:
    """Medians of both, and of the ratios of neighbours; ``fresh`` clears the ground before each, unmeasured."""
    pairs = []
    for _ in range(times):
        took = []
        for act in (floor, ours):
            fresh()
            took.append(timed(act, 1))
        pairs.append((took[0], took[1]))
    return (statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs),
            statistics.median(b / a for a, b in pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host")
    parser.add_argument("--ssh-config")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--megabytes", type=int, default=330)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench(Path(folder), args)


def bench(folder: Path, args: argparse.Namespace) -> None:
    options = ["-F", args.ssh_config] if args.ssh_config else []
    if options:
        wrapper = folder / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {args.ssh_config} "$@"\n')
        wrapper.chmod(0o755)
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    backends = {"there": {"type": "ssh", "host": args.host, "python": args.python, "remote_dir": "~/pt-bench"}}
    scheme = {"annotation_type": "radio", "name": "s", "labels": ["a", "b"], "description": "?"}
    (folder / "config.yaml").write_text(json.dumps({
        "task_dir": ".", "data_files": ["i.jsonl"], "item_properties": {"id_key": "id", "text_key": "text"},
        "annotation_schemes": [scheme], "model_training": {"enabled": True, "backends": backends}}))
    config = load_or_raise(folder / "config.yaml")
    compiled = compile_run(config, RunRequest("bench", "there", "sklearn-text", ("s",)), version="0")
    for name, text in compiled.files.items():
        (folder / name).write_text(text)
    trainer = Trainers()["sklearn-text"]
    (folder / "place.json").write_text(json.dumps(place_facts(config, config.backends["there"], trainer)))
    desk = Desk(folder, lambda text: None, lambda *a: None, lambda **f: None, lambda t: None, lambda: None)

    def login() -> SshLauncher:
        launcher = SshLauncher("bench", desk, {})
        launcher.launch("/tmp/pt-bench-nobody", lambda: "x" * 43)
        return launcher

    def remove(launcher: SshLauncher) -> None:
        assert launcher._line is not None
        run_script(launcher._line.ssh, "remove_job.sh", compiled.files["remove_job.sh"], "all",
                   launcher._held.sockets(), "0", seconds=60)
        launcher.leave()

    def whole() -> None:
        remove(login())

    whole()  # the code is there from now on
    plain = timed(lambda: subprocess.run(["ssh", "-o", "BatchMode=yes", args.host, "true"], check=True))
    took = []
    for _ in range(5):
        began = time.perf_counter()
        launcher = login()
        took.append(time.perf_counter() - began)
        remove(launcher)
    begun = statistics.median(took)
    print(f"login to agent running {begun:.3f} s, ssh true {plain:.3f} s: {begun / plain:.2f}")

    launcher = login()
    line = launcher._line
    assert line is not None
    whole_tar = b"".join(code.archive())

    def bare_tar() -> None:
        command = "mkdir -p pt-bench-tar && tar -xf - -C pt-bench-tar"
        subprocess.run(line.ssh.argv(command=command), input=whole_tar, check=True)

    def our_copy() -> None:
        run_script(line.ssh, "receive_code.sh", compiled.files["receive_code.sh"], code.code_hash(), seconds=60,
                   tail=code.archive())

    def no_code() -> None:
        """And no compiler of the code at work, for which nobody waits."""
        command = ("while ls -d pt-bench/code/.[0-9a-f]*; do sleep 0.1; done; "
                   "until rm -rf pt-bench-tar pt-bench/code; do sleep 0.1; done")
        subprocess.run(line.ssh.argv(command=command), check=True, stdin=subprocess.DEVNULL, capture_output=True)

    floor, ours, ratio = in_turn(bare_tar, our_copy, no_code)
    print(f"code: {ours:.3f} s, bare tar {floor:.3f} s: {ratio:.2f}")

    make = (f"mkdir -p pt-bench/jobs/bench/artifacts/m && head -c {args.megabytes}M /dev/urandom "
            "> pt-bench/jobs/bench/artifacts/m/model.bin")
    subprocess.run(line.ssh.argv(command=make), check=True)
    target = folder / "scp"
    master = line.ssh.control

    def scp() -> None:
        subprocess.run(["rm", "-rf", str(target)], check=True)
        subprocess.run(["scp", "-q", *options, "-o", f"ControlPath={master}", "-r",
                        f"{args.host}:pt-bench/jobs/bench/artifacts", str(target)], check=True)

    facts = {**launcher._facts, "max_artifact_mb": 10_000}

    def ours_back() -> None:
        got = artifacts.fetch(line, desk, facts)
        assert got.whole, got

    floor, ours = timed(scp, 3), timed(ours_back, 3)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{args.megabytes} MB back: {ours:.2f} s, scp {floor:.2f} s: {ours / floor:.2f}; peak {memory:.0f} MiB")
    remove(launcher)
    with contextlib.suppress(subprocess.CalledProcessError):
        subprocess.run(["ssh", args.host, "rm -rf pt-bench pt-bench-tar"], check=True)


if __name__ == "__main__":
    main()
