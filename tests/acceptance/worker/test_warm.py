"""The quick jobs' processes are what fresh ones are."""

import json
import os
import signal
import subprocess
import sys

import pytest

LIBRARIES = ("decimal",)

PROBE = """
import json, os, signal, sys, threading
argv, me = sys.argv, os.getpid()
print(json.dumps({
    "name": __name__, "program": os.path.basename(argv[0]), "arguments": argv[1:], "cwd": os.getcwd(),
    "env": dict(os.environ), "leads": [os.getsid(0) == me, os.getpgid(0) == me], "umask": os.umask(0o22),
    "open": sorted(map(int, os.listdir("/proc/self/fd")))[:-1], "path": sys.path, "threads": threading.active_count(),
    "signals": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "read": sys.stdin.read()}))
print("to stderr", file=sys.stderr)
sys.exit(int(argv[1]))
"""


def fresh(module, arguments, **how):
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, start_new_session=True,
                            **how)


@pytest.mark.parametrize("code", ["0", "7"])
def test_what_a_process_sees_and_how_it_ends(warm, tmp_path, code):
    (tmp_path / "probe.py").write_text(PROBE)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}/no/such/folder", "MORE": "yes"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    seen = []
    for n, start in enumerate((fresh, warm.start)):
        with (tmp_path / f"out{n}").open("wb") as out, (tmp_path / f"err{n}").open("wb") as err:
            process = start("probe", [code, "two words"], cwd=tmp_path, env=env, stdout=out, stderr=err)
        process.stdin.write(b"told")
        process.stdin.close()
        assert process.wait(60) == int(code)
        assert (tmp_path / f"err{n}").read_text() == "to stderr\n"
        seen.append(json.loads((tmp_path / f"out{n}").read_text()))
    assert seen[0] == seen[1]
    assert seen[0]["leads"] == [True, True] and seen[0]["read"] == "told"


def test_a_signal_ends_it_and_the_next_one_starts(warm, tmp_path):
    for number in (signal.SIGKILL, signal.SIGTERM):
        with (tmp_path / "out").open("wb") as out:
            process = warm.start("timeit", ["-n", "1", "import time; time.sleep(600)"], cwd=tmp_path, env=os.environ,
                                 stdout=out, stderr=out)
        assert process.poll() is None
        os.killpg(process.pid, number)
        assert process.wait(60) == -number
        process.stdin.close()


def test_a_worker_in_it_tells_what_a_worker_tells(make_job, quick_job):
    told = []
    for n, make in enumerate((make_job, quick_job)):
        job = make("test-quick", name=f"job{n}")
        assert job.run() == 0, job.stderr
        told.append([{k: v for k, v in e.items() if k not in ("t", "pid")}
                     for e in job.events() if e["event"] in ("status", "artifact", "result")])
        assert (job.exit_code, job.stderr) == (0, "")
    assert told[0] == told[1]
