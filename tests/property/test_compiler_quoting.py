"""Hostile values, found unchanged at the other end of real shells; and shellcheck has nothing to say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from potato_training.compiler import quoting

SHELLS = ("sh", "bash", "dash", "bash --posix")
ONCE = settings(max_examples=int(os.environ.get("POTATO_EXAMPLES", "25")))

NASTY = [*"ab ~/\\'\"$`!*?[]{}()<>|&;#=-+%^,.:@", "$HOME", "$(id)", "`id`", "${x}", "\\n", "%s", "--", "..", "é", "日",
         "“", "”", "″", "‘", "’", "\u00a0", "\u200b", "\u2028", "\ufeff", "🙂", "ls", "if", "START", "example"]
#: No control characters: validation refuses those in any value that reaches a script.
CHARACTERS = st.sampled_from(NASTY) | st.characters(exclude_categories=("Cc", "Cs"))
VALUES = st.lists(CHARACTERS, max_size=12).map("".join)
LONG = VALUES.map(lambda v: v * 2000)
#: One name in a directory: something, no slash, not a dot's, at most 200 bytes.
FILES = st.lists(CHARACTERS.filter(lambda c: "/" not in c), min_size=1, max_size=10).map("".join).filter(
    lambda v: v.strip(".") and len(v.encode()) <= 200)
ENV_NAMES = st.sampled_from(["A", "_b", "LONG_NAME_1", "x", "python", "code", "child", "rc", "mark", "TERM_X"])
ENVS = st.dictionaries(ENV_NAMES, VALUES | LONG, max_size=5)


def echoed(shell, values):
    script = "".join(f"printf '%s\\0' {quoting.word(value)}\n" for value in values)
    done = subprocess.run([*shell.split(), "-s"], input=script.encode(), capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("shell", SHELLS)
@given(st.lists(VALUES | LONG, min_size=1, max_size=20))
@example(["-n", "-e", "~", "~/x", "~root", "", " ", "*", "\\", "\\\\", "'", '"', "$", "`", "!!", "#", "‘", "“$", "~‘“"])
def test_a_word_stands_for_itself(shell, values):
    assert echoed(shell, values) == values


@pytest.mark.parametrize("shell", SHELLS)
@given(st.lists(VALUES, min_size=1, max_size=20), FILES)
def test_a_path_begins_at_home_or_stands_for_itself(shell, values, home):
    paths = [v for value in values for v in (value, "~/" + value)]
    script = "".join(f"printf '%s\\0' {quoting.path(value)}\n" for value in paths)
    done = subprocess.run([*shell.split(), "-s"], input=script.encode(), capture_output=True, check=True,
                          env={"HOME": f"/h/{home}", "PATH": os.environ["PATH"]})
    at_home = [f"/h/{home}" + p[1:] if p == "~" or p.startswith("~/") else p for p in paths]
    assert done.stdout.decode().split("\0")[:-1] == at_home


@ONCE
@given(values=st.lists(VALUES, min_size=5, max_size=25))
def test_shellcheck_is_silent_about_words_wherever_they_stand(shellcheck, values):
    lines = []
    for n, value in enumerate(values):
        word, path = quoting.word(value), quoting.path("~/" + value)
        lines += [f"export V{n}={word}", f"x{n}={word}", f"p{n}={path}", f'[ -d "$p{n}" ] || exit 1',
                  f"printf '%s\\n' {word} \"$x{n}\"", f"command -v -- {path} > /dev/null"]
    scripts = ["\n".join([f"#!/bin/{shell}", *lines]) + "\n" for shell in ("sh", "bash")]
    assert shellcheck(*scripts) == ""


# --- whole scripts --------------------------------------------------------------------------------

STUB = """#!{python}
import json, os, sys
if sys.argv[1] == "-c":
    sys.exit(0)
print(json.dumps({{"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ)}}))
"""
#: What a shell sets by itself, and what the scripts set on purpose.
OF_SHELLS = {"_", "PWD", "OLDPWD", "SHLVL", "PYTHONPATH"}


class Ground:
    """A fresh directory with a home, an interpreter at a hostile path, and a file of secrets."""

    def __init__(self, home, program, secrets):
        self.root = Path(tempfile.mkdtemp(prefix="potato-"))
        self.home = self.root / home
        self.home.mkdir()
        self.python = self.home / "bin" / program
        self.python.parent.mkdir()
        self.python.write_text(STUB.format(python=sys.executable))
        self.python.chmod(0o700)
        self.secrets = self.home / f"{program}.env"
        self.secrets.write_bytes(b"# secrets\n\n" + "".join(f"{k}={v}\n" for k, v in secrets.items()).encode())
        self.secrets.chmod(0o600)
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8",
                    "PYTHONPATH": "/inherited", "PYTHONHOME": "/inherited"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root)


SECRETS = st.dictionaries(st.sampled_from(["TOKEN", "_K", "S3_SECRET"]), VALUES, max_size=3)


@ONCE
@given(home=FILES, program=FILES, job=FILES, env=ENVS, secrets=SECRETS, threads=st.integers(1, 64))
def test_job_sh_hands_every_value_to_the_worker(compiled, shellcheck, home, program, job, env, secrets, threads):
    with Ground(home, program, secrets) as ground:
        folder = ground.root / "jobs" / job
        folder.mkdir(parents=True)
        script = compiled(
            "slurm", job_python=f"~/bin/{program}", env=env, env_file=f"~/{program}.env", num_threads=threads,
            prelude=["export from_prelude=\"as it \\$stands\""], remote_dir=f"~/{job}",
        ).files["job.sh"]
        assert shellcheck(script) == ""
        (folder / "job.sh").write_text(script, encoding="utf-8")
        (folder / "spec.json").touch()  # what the job waits for on storage that shows it late
        told = {**ground.env, "SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(folder)}
        done = subprocess.run(["/bin/bash", "-l", folder / "job.sh"], cwd="/", env=told, capture_output=True)
        assert (folder / "exit_code").read_text() == "0\n", (done, (folder / "stderr.log").read_text())
        assert done.returncode == 0
        seen = json.loads((folder / "events.jsonl").read_text("utf-8"))
    assert seen["cwd"] == str(folder)
    assert seen["argv"][1:] == ["-m", "potato_training.worker", "--spec", "spec.json"]
    expected = {**env, **secrets, **dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)), "from_prelude": "as it $stands"}
    assert {name: seen["env"].get(name) for name in expected} == expected
    assert seen["env"]["PYTHONPATH"] == "code"
    assert "PYTHONHOME" not in seen["env"]


AGENT = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ), "stdin": sys.stdin.read()}))
"""


def lay_code(store):
    worker = store / "abc123" / "potato_training" / "worker"
    worker.mkdir(parents=True)
    (worker.parent / "__init__.py").touch()
    (worker / "__init__.py").touch()
    (worker / "agent.py").write_text(AGENT)
    files = sorted(worker.parent.rglob("*.py"))
    (store / "abc123" / "abc123").write_text("".join(
        f"{file.stat().st_size} {file.relative_to(worker.parent.parent)}\n" for file in files))


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
@pytest.mark.parametrize("kind", ["ssh", "ssh with a prelude", "slurm"])
@settings(max_examples=max(5, ONCE.max_examples // 3))
@given(home=FILES, program=FILES, root=FILES, env=ENVS, secrets=SECRETS, threads=st.integers(1, 64))
def test_launch_sh_hands_every_value_to_the_agent(
    compiled, over_ssh, kind, shell, home, program, root, env, secrets, threads
):
    keys = {"python": f"~/bin/{program}", "env": env, "remote_dir": f"~/{root}.d", "num_threads": threads}
    expected = dict(env)
    if kind != "slurm":
        keys.update(env_file=f"~/{program}.env", gpus="0,1")
        expected.update(secrets, CUDA_VISIBLE_DEVICES="0,1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
        expected.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)))
    if kind == "ssh with a prelude":
        keys["prelude"] = ["echo chatter", "read -r nothing || true", "export from_prelude='as it $stands'"]
        expected["from_prelude"] = "as it $stands"
    with Ground(home, program, secrets) as ground:
        ground.python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        lay_code(ground.home / f"{root}.d" / "code")
        script = compiled(kind.split()[0], **keys).files["launch.sh"]
        told = {**ground.env, "SBATCH_PARTITION": "x", "SLURM_JOB_ID": "1", "SLURM_CONF": "/kept"}
        answer = over_ssh(script, "abc123", shell=shell, tail=b'{"socket": 1}\n', env=told, cwd="/")
        assert answer.end == 0, (answer.said, answer.stderr)
        seen = json.loads(answer.rest.split(b"\n", 1)[1])
        job = ground.home / f"{root}.d" / "jobs" / "example"
        assert seen["argv"] == ["--job-dir", str(job)]
        assert seen["cwd"] == str(job)
        assert (job / "code" / "potato_training" / "worker" / "agent.py").stat().st_nlink == 2
        assert job.stat().st_mode & 0o777 == 0o700
    assert seen["stdin"] == '{"socket": 1}\n'
    assert {name: seen["env"].get(name) for name in expected} == expected
    assert seen["env"]["PYTHONPATH"] == "code"
    assert "PYTHONHOME" not in seen["env"]
    assert ("SBATCH_PARTITION" in seen["env"]) == (kind != "slurm")
    assert seen["env"]["SLURM_CONF"] == "/kept"


PACKAGER = """#!{python} -S
import json, os, shutil, sys
if sys.argv[1:3] == ["-m", "venv"]:
    place = os.path.join(sys.argv[-1], "bin")
    os.makedirs(place)
    shutil.copy(sys.argv[0], os.path.join(place, "python"))
elif sys.argv[1:3] == ["-m", "pip"]:
    print("PIP " + json.dumps(sys.argv[3:]))
else:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
@settings(max_examples=max(2, ONCE.max_examples // 10))
@given(home=FILES, program=FILES, root=FILES, env=ENVS, packages=st.lists(VALUES.filter(bool), min_size=1, max_size=3))
def test_every_step_of_a_run_finds_its_way(compiled, over_ssh, shell, home, program, root, env, packages):
    """Probe, venv, code, model files, removal: in a hostile directory, by a hostile interpreter."""
    import io
    import tarfile

    with Ground(home, program, {}) as ground:
        ground.python.write_text(PACKAGER.format(python=sys.executable))
        keys = {"python": f"~/bin/{program}", "env": env, "remote_dir": f"~/{root}.d/x", "packages": packages}
        files = compiled("ssh", **keys).files
        place = ground.home / f"{root}.d" / "x"

        def run(name, *lines, **more):
            answer = over_ssh(files[name], *lines, shell=shell, env=ground.env, cwd="/", **more)
            assert answer.end in (0, None), (name, answer.values, answer.stderr)
            return answer

        seen = run("probe.sh", "abc123", "-", "json").values
        assert seen["root"] == [str(place)]
        assert seen["python"][0].split(" ", 1)[1] == str(ground.python)
        assert seen["venv"] == ["missing"]
        seen = run("venv.sh", hold=True).values
        asked = json.loads(next(line for line in seen["pip"] if line.startswith("PIP "))[4:])
        assert asked[asked.index("--") + 1:] == packages
        assert Path(seen["python"][0]).is_relative_to(place / "venvs")
        assert run("probe.sh", "abc123", "-", "json").values["venv"] == ["there"]
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("empty.py"))
            listed = tarfile.TarInfo("abc123")  # the last member lists the others
            listed.size = len(b"0 empty.py\n")
            archive.addfile(listed, io.BytesIO(b"0 empty.py\n"))
        assert run("receive_code.sh", "abc123", tail=tar.getvalue()).values["code"] == [f"{place}/code/abc123"]
        (place / "jobs" / "example" / "artifacts").mkdir(parents=True)
        (place / "jobs" / "example" / "artifacts" / "m").write_bytes(b"xyz")
        assert run("send_artifacts.sh").values["file"] == ["3 m"]
        assert run("remove_job.sh", "all but artifacts", "-", "0").values["kept"] == [f"{place}/jobs/example/artifacts"]
        run("remove_job.sh", "all", "-", "0")
        assert list((place / "jobs").iterdir()) == []
