"""`potato validate` as a whole process, over `python -c pass` in the same run; and a config of 5,000 lines.

    python benchmarks/validate.py [--rounds 60]

Builds a wheel, installs it without its dependencies but PyYAML into a fresh environment with bytecode, and takes the
fastest of all rounds of each command, which are interleaved: what a shared machine adds, it adds to all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = ROOT / "tests" / "fixtures" / "configs" / "good" / "tutorial.yaml"


def environment(place: Path) -> Path:
    """A directory of programs that has potato from an installed wheel, as a user has it."""
    quiet = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    venv.create(place / "venv", with_pip=True)
    python = place / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place / "wheel", ROOT], check=True)
    (wheel,) = (place / "wheel").glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "pyyaml"], check=True)
    subprocess.run([python, "-m", "compileall", "-q", place / "venv" / "lib"], env=quiet, check=False)
    return python.parent


def big_config(path: Path) -> None:
    """5,000 lines, 200 backends of all types, no findings but notes."""
    lines = [
        "annotation_schemes:",
        "  - {annotation_type: radio, name: sentiment, description: d, labels: [a, b]}",
        "model_training:", "  enabled: true", "  backends:",
    ]
    kinds = (
        ["type: ssh", "host: gpu.example.org", "port: 22", "python: /opt/bin/python3", "gpus: auto", "num_threads: 8"],
        ["type: slurm", "host: login.example.org", "remote_dir: /shared/p", "gres: gpu:1", "time: 4:00:00", "mem: 16G"],
        ["type: agent", "queue_timeout_s: 3600"],
    )
    for i in range(200):
        lines.append(f"    backend-{i}:")
        lines += [f"      {line}" for line in kinds[i % 3]]
        if i % 3 < 2:
            lines += ["      env:", *(f"        VARIABLE_{n}: value {n}" for n in range(12))]
            lines += ["      prelude:", *(f"        - module load tool/{n}" for n in range(8))]
    lines += [f"# line {n}" for n in range(len(lines), 5000)]
    path.write_text("\n".join(lines[:5000]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        programs = environment(place)
        big_config(place / "big.yaml")
        potato = str(programs / "potato")
        commands = {
            "python -c pass": [str(programs / "python"), "-c", "pass"],
            "import yaml": [str(programs / "python"), "-c", "import yaml"],
            "potato --version": [potato, "--version"],
            "potato validate, tutorial": [potato, "validate", str(TUTORIAL)],
            "potato validate, 5,000 lines": [potato, "validate", str(place / "big.yaml")],
        }
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        best = dict.fromkeys(commands, float("inf"))
        for _ in range(rounds):
            for what, command in commands.items():
                begun = time.perf_counter()
                subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
                best[what] = min(best[what], time.perf_counter() - begun)
        for what, seconds in best.items():
            print(f"{what:<30} {seconds * 1000:7.1f} ms   {seconds / best['python -c pass']:5.2f}")
        peak = subprocess.run(
            [str(programs / "python"), "-c",
              "import sys; from potato_training.cli.main import main; main(sys.argv[1:]); "
             "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')), file=sys.stderr)",
             "validate", str(TUTORIAL)], cwd=place, env=env, capture_output=True, text=True, check=True).stderr
        print(f"{'peak memory, tutorial':<30} {int(peak.split()[1]) / 1024:7.1f} MiB")


if __name__ == "__main__":
    sys.exit(main())
