"""The tests of the real Slurm once more, on other versions of it: ``make test-slurm-versions``.

    python tests/real/slurm_versions/run.py [bullseye] [trixie] [-- arguments for pytest]

Debian's own packages are unpacked by debootstrap into /var/cache/potato-training-tests (once, about 300 MB and a
minute each; bullseye has 20.11, trixie has 24.11). Nothing of them is installed: their programs are run from there,
by the loader and with the libraries that came with them, so jobs see this machine as it is. The munged is this
machine's. What cannot be done here is said, and is no failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CACHE = Path("/var/cache/potato-training-tests")
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
SUITES = {"bullseye": "20.11", "trixie": "24.11"}
TESTS = ("tests/real/slurm", "tests/real/test_job_script_real.py")
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
DAEMONS = ("slurmctld", "slurmd", "slurmstepd")

COMMAND = '#!/bin/sh\nexec {start} {program} "$@"\n'
#: slurmd starts the slurmstepd of the path that it was built with: in a view of its own, that is the one beside it.
SLURMD = """#!/bin/sh
exec unshare -m sh -c 'mount --bind "$1" /usr/sbin/slurmstepd && shift && exec "$@"' - {stepd} \\
  {start} {program} "$@"
"""


class Skipped(Exception):
    """Why a version cannot be tried here."""


def unpack(suite: str) -> Path:
    """The directory of a suite's Slurm, made when it is not there."""
    if os.geteuid() != 0:
        raise Skipped("it needs root")
    for program in ("debootstrap", "unshare", "slurmstepd", "munged"):
        if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            raise Skipped(f"{program} is not installed (Debian: debootstrap, util-linux, slurm-wlm, munge)")
    home = CACHE / f"slurm-{suite}"
    if not (home / "COMPLETE").exists():
        shutil.rmtree(home, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        print(f"{suite}: unpacking from {MIRROR}", flush=True)
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=slurm-wlm", suite, str(home), MIRROR],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )
        if done.returncode != 0:
            raise Skipped(f"debootstrap failed: {(done.stderr or done.stdout).strip()[-300:]}")
        (home / "COMPLETE").touch()
    return home


def prepare(home: Path) -> Path:
    """Programs to put first on PATH, and what slurm.conf needs; the directory that the tests are told of."""
    libraries = next((home / "usr" / "lib").glob("*-linux-gnu"))
    plugins = libraries / "slurm-wlm"
    loader = libraries / "ld-linux-x86-64.so.2"
    if not loader.exists():
        raise Skipped("this machine is not x86-64")
    start = f"{loader} --library-path {libraries}:{plugins}:{home}/lib/{libraries.name}"
    knows = "--argv0" in subprocess.run([loader, "--help"], capture_output=True, text=True).stdout
    made = home / "potato"
    (made / "bin").mkdir(parents=True, exist_ok=True)
    for name in (*COMMANDS, *DAEMONS):
        folder = home / "usr" / ("bin" if name in COMMANDS else "sbin")
        program = made / "programs" / name  # they go by the name under which they are called
        program.parent.mkdir(exist_ok=True)
        program.unlink(missing_ok=True)
        program.symlink_to(folder / (f"{name}-wlm" if (folder / f"{name}-wlm").exists() else name))
        text = SLURMD if name == "slurmd" else COMMAND
        target = made / "bin" / name
        # slurmctld 24.11 starts itself once more, by the name that it was called by
        called = f"{start} --argv0 {target}" if knows else start
        target.write_text(text.format(start=called, program=program, stepd=made / "bin" / "slurmstepd"))
        target.chmod(0o755)
    (made / "more.conf").write_text(f"PluginDir={plugins}\n")
    # from 23.11 on slurmd wants cgroups of its own unless it is told otherwise
    (made / "cgroup.conf").write_text("CgroupPlugin=disabled\n" if "trixie" in home.name else "CgroupAutomount=no\n")
    return made


def main(arguments: list[str]) -> int:
    more = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    suites = arguments[:arguments.index("--")] if "--" in arguments else arguments
    told, code = [], 0
    for suite in suites or SUITES:
        try:
            made = prepare(unpack(suite))
        except Skipped as why:
            told.append(f"{suite}: skipped, {why}")
            continue
        command = [sys.executable, "-m", "pytest", "-q", *(more or TESTS)]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "POTATO_SLURM_HOME": str(made)})
        told.append(f"{suite} (Slurm {SUITES.get(suite, '?')}): " + ("passed" if done.returncode == 0 else "FAILED"))
        code = code or done.returncode
    print("\n".join(told))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
