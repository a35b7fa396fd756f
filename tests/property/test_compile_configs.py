"""Configs made at random, hostile ones too: whatever they say, the scripts are whole, clean and the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from potato_training.compiler.sbatch import FLAGS

FAKE = Path(__file__).parents[1] / "fixtures" / "fake_slurm"
FEW = settings(max_examples=int(os.environ.get("POTATO_EXAMPLES", "12")))

NASTY = [*"ab ~/\\'\"$`!*?[]{}()<>|&;#=-+%^,.:@", "$HOME", "$(id)", "`id`", "${x}", "\\n", "%s", "--", "..", "é", "日",
         "“", "”", "″", "‘", "’", "\u00a0", "\u200b", "\u2028", "\ufeff", "🙂", "ls", "if", "START"]
CHARACTERS = st.sampled_from(NASTY) | st.characters(exclude_categories=("Cc", "Cs"))
VALUES = st.lists(CHARACTERS, min_size=1, max_size=15).map("".join)
PATHS = st.tuples(st.sampled_from(["~", "~/", "/"]), VALUES).map(lambda p: p[0] if p[0] == "~" else p[0] + p[1])
ENVS = st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), VALUES, max_size=4)
#: Shell that shellcheck has nothing against; any other would be the user's own.
PRELUDES = st.lists(st.sampled_from([
    "module load cuda/12.4", "source /opt/x/activate", ". ~/env.sh", "if [ -d /opt ]; then true; fi", "START",
    "export A=\"b c\"", "test -f /x && source /x", "cat << E > /dev/null", "E", "echo \"it's\"",
]), max_size=5).filter(lambda lines: lines.count("cat << E > /dev/null") == lines.count("E") == 0
                       or ("E" in lines and lines[-2:] == ["cat << E > /dev/null", "E"]
                           and lines.count("E") == lines.count("cat << E > /dev/null") == 1))


def maybe(values):
    return st.none() | values


COMMON = {
    "python": PATHS | st.just("python3"), "remote_dir": PATHS, "env": ENVS, "env_file": maybe(PATHS),
    "prelude": PRELUDES, "num_threads": maybe(st.integers(1, 999)), "max_artifact_mb": st.integers(1, 10**6),
    "fetch_artifacts": st.booleans(), "keep_remote": st.booleans(),
}
SSH = st.fixed_dictionaries({
    **COMMON, "packages": st.lists(VALUES, max_size=3), "min_free_gpu_mb": st.integers(0, 10**6),
    "gpus": st.sampled_from(["auto", "none", "0", "0,1", "7"]),
})
ARGS = st.lists(st.sampled_from(["--comment", "--licenses", "--wckey"]), max_size=3).flatmap(
    lambda names: st.tuples(*(VALUES.map(f"{name}=".__add__) for name in names)).map(list))
SLURM = st.fixed_dictionaries({
    **COMMON, **{key: maybe(VALUES) for key in FLAGS if key not in ("nice", "cpus_per_task", "time")},
    "nice": maybe(st.integers(-100, 100)), "cpus_per_task": maybe(st.integers(1, 128)),
    "time": maybe(st.just("1-2:3:4")),
    "job_python": maybe(PATHS), "requeue": st.booleans(), "sbatch_args": ARGS,
})


def whole(files, shellcheck):
    assert all(text.endswith("\n") and "\r" not in text for text in files.values())
    for name, text in files.items():
        for shell in ("bash",) if name == "job.sh" else ("bash", "dash"):
            done = subprocess.run([shell, "-n"], input=text.encode(), capture_output=True)
            assert (done.returncode, done.stderr) == (0, b""), (name, text)
    assert shellcheck(*files.values()) == ""


@FEW
@given(keys=SSH)
@example(keys={"python": "~/x ", "remote_dir": "/ ", "packages": ["-"], "prelude": ["START", ". /x"]})
def test_ssh(compiled, shellcheck, keys):
    files = dict(compiled("ssh", **keys).files)
    assert files == dict(compiled("ssh", **keys).files)
    assert ("venv.sh" in files) == bool(keys["packages"])
    whole(files, shellcheck)


@FEW
@given(keys=SLURM)
@example(keys={"sbatch_args": ["--comment=a\\"], "partition": '"', "qos": "#", "prelude": ["test -f /x && source /x"],
               "remote_dir": "~", "env": {"A": "~“$x"}})
def test_slurm(compiled, shellcheck, keys):
    files = dict(compiled("slurm", **keys).files)
    assert files == dict(compiled("slurm", **keys).files)
    whole(files, shellcheck)


@given(keys=SLURM)
def test_the_flags_are_what_sbatch_reads(compiled, keys):
    """By the stand-in's reading of #SBATCH lines, which is the real one's: tests/real/ compares the two."""
    sys.path.insert(0, str(FAKE))
    try:
        from lib import batch
    finally:
        sys.path.remove(str(FAKE))
    found = batch.directives(compiled("slurm", run_id="r-1", **keys).files["job.sh"])
    expected = {"job-name": "potato-r-1", "output": "slurm.out", "export": "ALL"}
    expected.update({"requeue": True, "open-mode": "append"} if keys["requeue"] else {"no-requeue": True})
    expected.update({flag[2:]: str(keys[key]) for key, flag in FLAGS.items() if keys[key] is not None})
    expected.update(tuple(arg[2:].split("=", 1)) for arg in keys["sbatch_args"])
    assert found == expected
