"""The scripts that go through a login, executed as a login executes them, under the shells that hosts have."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

SHELLS = ["sh", "bash", "dash"]
CODE = "0123abcdef"


@pytest.fixture
def host(tmp_path):
    """A home directory and an environment as a login has it; ``program`` puts an executable on its PATH."""

    class Host:
        home = tmp_path / "home of me"
        programs = tmp_path / "programs"
        env: dict

        def program(self, name, text):
            path = self.programs / name
            path.write_text(text)
            path.chmod(0o755)
            return path

    made = Host()
    made.home.mkdir()
    made.programs.mkdir()
    made.env = {"HOME": str(made.home), "PATH": f"{made.programs}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    made.root = made.home / ".cache" / "potato-training"
    return made


@pytest.fixture
def ssh(compiled):
    """The scripts of an ssh backend, with this interpreter."""
    return lambda **keys: compiled("ssh", **{"python": sys.executable, **keys}).files


# --- the one line that every login shell understands ---------------------------------------------------


@pytest.mark.parametrize("login", ["bash", "dash", "fish", "tcsh", "bash -l"])
def test_every_login_shell_runs_a_script(ssh, host, over_ssh, login):
    program, *options = login.split()
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    chatter = "echo 'Welcome! 3 jobs'\necho 4242\n"
    for name in (".bashrc", ".profile", ".bash_profile", ".tcshrc", ".cshrc"):
        (host.home / name).write_text(chatter)
    (host.home / ".config" / "fish").mkdir(parents=True)
    (host.home / ".config" / "fish" / "config.fish").write_text(chatter)
    answer = over_ssh(ssh()["probe.sh"], CODE, "-", "json", login=(program, *options, "-c"), env=host.env)
    assert answer.end == 0
    assert answer.values["home"] == [str(host.home)]
    assert answer.values["module"] == ["json there"]


@pytest.mark.parametrize("shell", SHELLS)
def test_no_mark_no_work(ssh, host, shell):
    for name, text in ssh(packages=["x"]).items():
        done = subprocess.run([shell, "-c", text], stdin=subprocess.DEVNULL, env=host.env, capture_output=True)
        assert (name, done.returncode, done.stdout) == (name, 64, b"")
    assert not host.root.exists()


# --- probe --------------------------------------------------------------------------------------------


def gpu_lines(*lines, code=0):
    """An nvidia-smi that answers a query with these lines, and -L with one device a line."""
    said = "\n".join(lines)
    listed = "case $1 in -L) echo 'GPU 0: MIG 1g.10gb (UUID: MIG-1)' ;; *)"
    return f"#!/bin/sh\n{listed}\ncat <<'X'\n{said}\nX\n;; esac\nexit {code}\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_probe_says_what_is_there(ssh, host, over_ssh, shell):
    cards = ["0, GPU-a, NVIDIA A100, 40960, 30000, 5", "1, GPU-b, NVIDIA T4, [N/A], [N/A], [N/A]"]
    host.program("nvidia-smi", gpu_lines(*cards))
    (host.root / "code" / CODE).mkdir(parents=True)
    answer = over_ssh(ssh()["probe.sh"], CODE, "-", "json no_such_module os.path", shell=shell, env=host.env)
    assert answer.end == 0
    values = answer.values
    version = ".".join(map(str, sys.version_info[:3]))
    assert values["python"] == [f"{version} {sys.executable}"]
    assert values["root"] == [str(host.root)]
    assert int(values["free_kb"][0]) > 0
    assert values["code"] == [CODE]
    assert "job" not in values
    assert values["gpus"] == ["auto"]
    assert values["nvidia_smi"] == ["0"]
    assert values["gpu"] == cards
    assert values["device"] == ["GPU 0: MIG 1g.10gb (UUID: MIG-1)"]
    assert values["module"] == ["json there", "no_such_module missing", "os.path there"]
    assert "other" not in values


def test_a_probe_without_gpus(ssh, host, over_ssh):
    assert over_ssh(ssh()["probe.sh"], CODE, "-", "", env=host.env).values["nvidia_smi"] == ["absent"]
    host.program("nvidia-smi", gpu_lines("0, GPU-a, NVIDIA A100, 40960, 30000, 5"))
    assert "gpu" not in over_ssh(ssh(gpus="none")["probe.sh"], CODE, "-", "", env=host.env).values


@pytest.mark.parametrize(("lines", "code"), [
    (["Failed to initialize NVML: Driver/library version mismatch"], 18), (["No devices were found"], 6),
])
def test_a_failing_nvidia_smi_is_told_with_its_words(ssh, host, over_ssh, lines, code):
    host.program("nvidia-smi", gpu_lines(*lines, code=code))
    values = over_ssh(ssh()["probe.sh"], CODE, "-", "", env=host.env).values
    assert values["nvidia_smi"] == [str(code)]
    assert values["gpu"] == lines


def test_a_hanging_nvidia_smi_is_given_up(ssh, host, over_ssh):
    host.program("nvidia-smi", "#!/bin/sh\nexec sleep 1000\n")
    host.program("timeout", '#!/bin/sh\nshift 3\nexec /usr/bin/timeout 0.2 "$@"\n')    # 20 s are long for a test
    values = over_ssh(ssh()["probe.sh"], CODE, "-", "", env=host.env).values
    assert values["nvidia_smi"] == ["124"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_missing_or_old_interpreter_lists_the_others(ssh, host, over_ssh, shell):
    real = host.program("python3.12", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    version = ".".join(map(str, sys.version_info[:3]))
    missing = over_ssh(ssh(python="~/nowhere/python")["probe.sh"], CODE, "-", "", shell=shell, env=host.env)
    assert "python" not in missing.values
    assert f"{version} {real}" in missing.values["other"]
    old = host.program("old", '#!/bin/sh\ncase $2 in *exit*) exit 1 ;; *) echo 3.6.8 ;; esac\n')
    found = over_ssh(ssh(python=str(old))["probe.sh"], CODE, "-", "", shell=shell, env=host.env)
    assert found.values["python"] == [f"3.6.8 {old}"]
    assert f"{version} {real}" in found.values["other"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_probe_makes_the_sockets_directory(ssh, host, over_ssh, shell):
    place = Path(f"/tmp/p-{os.urandom(4).hex()}")
    try:
        assert over_ssh(ssh()["probe.sh"], CODE, place.as_posix(), "", shell=shell, env=host.env).end == 0
        assert place.stat().st_mode & 0o777 == 0o700
        again = over_ssh(ssh()["probe.sh"], CODE, place.as_posix(), "", shell=shell, env=host.env)
        assert again.end == 1
        assert f"cannot make {place}" in again.values["error"][0]
    finally:
        place.rmdir()
    outside = over_ssh(ssh()["probe.sh"], CODE, "/tmp/p-x/../../etc/x", "", shell=shell, env=host.env)
    assert outside.values["error"] == ["no such socket"]


def test_a_remote_dir_that_cannot_be_written(ssh, host, over_ssh):
    (host.home / "file").touch()
    answer = over_ssh(ssh(remote_dir="~/file/x")["probe.sh"], CODE, "-", "", env=host.env)
    assert answer.end == 1
    assert f"cannot write to {host.home}/file/x" in answer.values["error"][0]


# --- probe of a login node ------------------------------------------------------------------------------


@pytest.fixture
def login_node(host, fake_slurm):
    host.env = {**host.env, "FAKE_SLURM_DIR": str(fake_slurm.root), "PATH": f"{fake_slurm.programs}:/usr/bin:/bin"}
    return host


@pytest.mark.parametrize("shell", SHELLS)
def test_the_login_nodes_probe(compiled, login_node, over_ssh, fake_slurm, shell):
    fake_slurm.scenario(partitions={"main": {"default": True}, "short": {"max_time": 1800}})
    files = compiled("slurm", python=sys.executable, job_python="/only/on/nodes/python").files
    harmful = {"SBATCH_PARTITION": "nope", "SQUEUE_USERS": "x", "SLURM_JOB_ID": "1", "SLURM_CONF": "/kept"}
    answer = over_ssh(files["probe.sh"], CODE, "-", "test", tail=files["job.sh"].encode(), shell=shell,
                      env={**login_node.env, **harmful})
    assert answer.end == 0, (answer.said, answer.stderr)
    values = answer.values
    assert values["sbatch"] == [f"{fake_slurm.programs}/sbatch"]
    assert values["slurm"] == ["slurm-wlm 22.05.8"]
    assert [line.split()[0] for line in values["partition"]] == ["PartitionName=main", "PartitionName=short"]
    assert "MaxTime=00:30:00" in values["partition"][1]
    assert values["job_python"] == ["missing"]
    assert values["test_code"] == ["0"]
    assert values["test_err"][0].startswith("sbatch: Job ")
    assert "test_cancelled" not in values
    assert fake_slurm.state()["jobs"] == {}
    for call in fake_slurm.calls():
        assert call["env"].get("LC_ALL") == "C"
        assert [k for k in call["env"] if k.startswith(("SBATCH", "SQUEUE", "SLURM"))] == ["SLURM_CONF"]
    assert not list((login_node.home / "pt").glob("test.*"))


def test_a_refusal_is_told_in_its_words(compiled, login_node, over_ssh):
    files = compiled("slurm", python=sys.executable, partition="nope").files
    values = over_ssh(files["probe.sh"], CODE, "-", "test", tail=files["job.sh"].encode(), env=login_node.env).values
    assert values["test_code"] == ["1"]
    assert "allocation failure: Invalid partition name specified" in values["test_err"]


@pytest.mark.parametrize("said", ["", "4242\n", "Submitted batch job 4242\n", "Welcome\n4242;alpha\n"])
def test_an_sbatch_that_submits_what_it_should_only_test(compiled, login_node, over_ssh, fake_slurm, said):
    real = (fake_slurm.programs / "sbatch").rename(fake_slurm.programs / "sbatch.real")
    (fake_slurm.programs / "sbatch").write_text(
        f"#!/bin/sh\nif [ \"$2\" = --test-only ]; then shift 2; '{real}' \"$@\" > /dev/null; printf '{said}'\n"
        f"else exec '{real}' \"$@\"; fi\n")
    (fake_slurm.programs / "sbatch").chmod(0o755)
    files = compiled("slurm", python=sys.executable).files
    answer = over_ssh(files["probe.sh"], CODE, "-", "test", tail=files["job.sh"].encode(), env=login_node.env)
    assert answer.end == 0
    assert answer.values.get("test_cancelled") == (["4242"] if said else None)
    assert fake_slurm.job(4242)["state"] == ("CANCELLED" if said else "PENDING")


def test_a_login_node_without_slurm(compiled, host, over_ssh):
    host.env["PATH"] = f"{host.programs}:/usr/bin:/bin"
    for name in ("sbatch", "squeue", "scancel", "scontrol"):
        if Path("/usr/bin", name).exists():
            host.env["PATH"] = str(host.programs)
    for name in ("uname", "env", "sed", "df", "awk", "mkdir", "timeout", "cat", "printf", "dd", "sh", "tail"):
        (host.programs / name).symlink_to(shutil.which(name))
    files = compiled("slurm", python=sys.executable).files
    answer = over_ssh(files["probe.sh"], CODE, "-", "no test", env=host.env)
    assert answer.end == 0, answer.stderr
    assert [answer.values[p] for p in ("sbatch", "squeue", "scancel", "scontrol")] == [["absent"]] * 4
    assert answer.values["slurm"] == [""]


# --- code -----------------------------------------------------------------------------------------------


SOME_CODE = dict.fromkeys(["potato_training/__init__.py", "potato_training/worker/agent.py"], b"# code\n" * 500)
TIDY = {"potato_training/worker/tidy.py": (Path(__file__).parents[2] / "worker" / "tidy.py").read_bytes()}


def code_tar(name=CODE, files=SOME_CODE):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, data in (*files.items(), (name, b"")):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.uid = len(data), 0o600, 12345
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_code_arrives_whole(ssh, host, over_ssh, shell):
    answer = over_ssh(ssh()["receive_code.sh"], CODE, tail=code_tar(), shell=shell, env=host.env)
    assert answer.end == 0, answer.stderr
    assert answer.values["code"] == [f"{host.root}/code/{CODE}"]
    found = sorted(str(p.relative_to(host.root / "code")) for p in (host.root / "code").rglob("*.py"))
    assert found == [f"{CODE}/potato_training/__init__.py", f"{CODE}/potato_training/worker/agent.py"]
    assert (host.root / "code" / CODE / found[0].split("/", 1)[1]).stat().st_uid == os.geteuid()
    for path in (host.root, host.root / "code", host.root / "code" / CODE):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("at", [0, 100, 512, 5000, 8192, -10240, -1])
def test_code_that_breaks_off_is_never_taken_for_whole(ssh, host, over_ssh, shell, at):
    whole = code_tar()
    # up to the record before the last member, whatever padding tar adds behind the end
    end = whole.index(CODE.encode() + b"\0")
    cut = whole[:end][:at] if at else b""
    answer = over_ssh(ssh()["receive_code.sh"], CODE, tail=cut, shell=shell, env=host.env)
    assert answer.end == 1
    assert "broke off" in answer.values["error"][0]
    assert list((host.root / "code").iterdir()) == []


def test_two_servers_bring_the_same_code_at_once(ssh, host, over_ssh, wait_until):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(
            lambda _: over_ssh(ssh()["receive_code.sh"], CODE, tail=code_tar(), env=host.env), range(4)))
    assert [a.end for a in answers] == [0, 0, 0, 0], [a.stderr for a in answers]
    assert sorted(p.name for p in (host.root / "code" / CODE).iterdir()) == [CODE, "potato_training"]
    wait_until(lambda: [p.name for p in (host.root / "code").iterdir()] == [CODE], "the end of what nobody waits for")


def test_somebody_is_first_at_the_very_moment(ssh, host, over_ssh):
    """mv finds a directory where there was none: it puts ours into theirs, which stays as it was."""
    place = host.root / "code" / CODE
    host.program("mv", f"#!/bin/sh\nmkdir -p '{place}/potato_training'\nexec /bin/mv \"$@\"\n")
    answer = over_ssh(ssh()["receive_code.sh"], CODE, tail=code_tar(), env=host.env)
    assert answer.end == 0, (answer.values, answer.stderr)
    assert [p.name for p in place.iterdir()] == ["potato_training"]


def test_the_newest_three_copies_stay(ssh, host, over_ssh, wait_until):
    store = host.root / "code"
    store.mkdir(parents=True)
    for n, name in enumerate(["aa", "bb", "cc", "dd"]):
        (store / name).mkdir()
        os.utime(store / name, (1000 + n, 1000 + n))
    (store / ".ee.123").mkdir()
    os.utime(store / ".ee.123", (1000, 1000))
    (store / ".ff.456").mkdir()         # somebody is at it
    tail = code_tar(files={**SOME_CODE, **TIDY})
    assert over_ssh(ssh()["receive_code.sh"], CODE, tail=tail, env=host.env).end == 0
    wait_until(lambda: sorted(p.name for p in store.iterdir()) == [".ff.456", CODE, "cc", "dd"], "the newest three")


def written_for(pyc):
    """The time of the source that this bytecode is for."""
    return int.from_bytes(pyc.read_bytes()[8:12], "little")


def source_of(pyc):
    return pyc.parents[1] / f"{pyc.name.split('.')[0]}.py"


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_jobs_copy_the_code_while_it_is_compiled(ssh, host, over_ssh, wait_until, shell):
    """However often: each copy is whole, and what it was copied from loses no name."""
    from potato_training.runtime.ssh import code

    wanted = set(code.files())
    launch = ssh(python="/bin/true")["launch.sh"]
    job = host.root / "jobs" / "example"
    for turn in range(3):
        name = f"{turn:032x}"
        tail = code_tar(name, code.files())
        answer = over_ssh(ssh()["receive_code.sh"], name, tail=tail, shell=shell, env=host.env)
        assert answer.end == 0, answer.values
        seen, made = set(), []
        while len(made) < len(wanted):
            shutil.rmtree(job, ignore_errors=True)
            answer = over_ssh(launch, name, tail=b"hello\n", shell=shell, env=host.env)
            assert answer.end == 0, answer.values
            assert wanted <= {str(p.relative_to(job / "code")) for p in (job / "code").rglob("*.py")}
            now = {str(p) for p in (host.root / "code" / name).rglob("*")}
            assert seen <= now, seen - now
            seen, made = now, [p for p in now if p.endswith(".pyc")]
    made = [p for p in (job / "code").rglob("*.pyc") if written_for(p) != int(source_of(p).stat().st_mtime)]
    assert made == [], "bytecode that Python would not take"
    wait_until(lambda: len(list((host.root / "code").iterdir())) == 3, "the newest three, and nothing else")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "XYZ", "."])
def test_code_has_a_plain_name(ssh, host, over_ssh, name):
    for script in ("receive_code.sh", "launch.sh"):
        answer = over_ssh(ssh()[script], name, tail=code_tar(), env=host.env)
        assert answer.values["error"] == ["no such code"]


# --- launch ---------------------------------------------------------------------------------------------


@pytest.fixture
def with_code(host):
    """An agent that prints what it reads, in the host's store of code."""
    worker = host.root / "code" / CODE / "potato_training" / "worker"
    worker.mkdir(parents=True)
    (worker.parent / "__init__.py").touch()
    (worker / "__init__.py").touch()
    (worker / "agent.py").write_text("import os, sys\nprint('agent', sys.stdin.readline().strip(), os.getcwd())\n")
    return host


@pytest.mark.parametrize("shell", SHELLS)
def test_launch_twice(ssh, with_code, over_ssh, shell):
    for _ in range(2):
        answer = over_ssh(ssh()["launch.sh"], CODE, tail=b"hello\n", shell=shell, env=with_code.env)
        job = with_code.root / "jobs" / "example"
        assert answer.end == 0, (answer.said, answer.stderr)
        assert answer.rest == f"0\nagent hello {job}\n".encode()
        assert sorted(p.name for p in job.iterdir()) == ["code"]
        shutil.rmtree(with_code.root / "code", ignore_errors=True)      # pruned meanwhile: the job has its own


def test_launch_without_code(ssh, host, over_ssh):
    answer = over_ssh(ssh()["launch.sh"], CODE, env=host.env)
    assert answer.end == 1
    assert "the code is not on" in answer.values["error"][0]


def test_launch_where_files_cannot_be_linked(ssh, with_code, over_ssh):
    with_code.program("cp", '#!/bin/sh\ncase $1 in -Rl) exit 1 ;; *) exec /bin/cp "$@" ;; esac\n')
    answer = over_ssh(ssh()["launch.sh"], CODE, tail=b"hello\n", env=with_code.env)
    assert answer.end == 0
    copied = with_code.root / "jobs" / "example" / "code" / "potato_training" / "worker" / "agent.py"
    assert copied.stat().st_nlink == 1
    original = with_code.root / "code" / CODE / "potato_training" / "worker" / "agent.py"
    assert copied.stat().st_mtime == original.stat().st_mtime, "its bytecode would be worth nothing"


def test_launch_while_the_code_is_pruned(ssh, with_code, over_ssh):
    """Half a copy is never taken for a whole one, whatever cp says; the server is told to copy it again."""
    source = with_code.root / "code" / CODE
    old = f"{source}.old"
    with_code.program("cp", f"#!/bin/sh\nmv '{source}' '{old}'\nexec /bin/cp \"$1\" -- '{old}'/* \"$4\"\n")
    answer = over_ssh(ssh()["launch.sh"], CODE, tail=b"hello\n", env=with_code.env)
    assert answer.end == 1
    assert answer.values["code"] == ["missing"]
    assert "the code is not on" in answer.values["error"][0]
    assert not (with_code.root / "jobs" / "example" / "code").exists()
    assert not source.exists()


def test_launch_beside_files_that_come_and_go(ssh, with_code, over_ssh, tmp_path):
    """A copy that was disturbed is made again; one that never succeeds ends with a reason."""
    count = tmp_path / "count"
    with_code.program("cp", f"#!/bin/sh\necho x >> '{count}'\n[ $(wc -l < '{count}') -gt 4 ] || exit 1\n"
                            'exec /bin/cp "$@"\n')
    assert over_ssh(ssh()["launch.sh"], CODE, tail=b"hello\n", env=with_code.env).end == 0
    shutil.rmtree(with_code.root / "jobs")
    with_code.program("cp", "#!/bin/sh\nexit 1\n")
    answer = over_ssh(ssh()["launch.sh"], CODE, tail=b"hello\n", env=with_code.env)
    assert (answer.end, "cannot copy the code to" in answer.values["error"][0]) == (1, True)


def test_launch_without_the_interpreter(ssh, with_code, over_ssh):
    answer = over_ssh(ssh(python="/nowhere/python")["launch.sh"], CODE, env=with_code.env)
    assert answer.values["error"] == [f"/nowhere/python was not found on {os.uname().nodename}"]


@pytest.mark.parametrize(("prelude", "reason"), [
    (["module load cuda/99"], "prelude failed (exit 127): module load cuda/99"),
    (["true", "f() { false; }", "f"], "prelude failed (exit 1): f"),
])
def test_a_failing_prelude_on_a_host(ssh, with_code, over_ssh, prelude, reason):
    answer = over_ssh(ssh(prelude=prelude)["launch.sh"], CODE, tail=b"hello\n", env=with_code.env)
    assert answer.end == 1
    assert answer.values["error"] == [reason]


def test_a_talkative_prelude_and_profile(ssh, with_code, over_ssh):
    (with_code.home / ".bash_profile").write_text("echo error=from the profile; read -r x\n")
    prelude = ["echo error=from the prelude", "read -r x || true", "export HF_HOME=/models", "cd /"]
    answer = over_ssh(ssh(prelude=prelude)["launch.sh"], CODE, tail=b"hello\n", env=with_code.env)
    assert answer.end == 0
    assert "error" not in answer.values
    assert answer.rest.startswith(b"0\nagent hello ")
    assert "from the prelude" in answer.stderr


@pytest.mark.parametrize(("gpus", "env", "seen"), [
    ("none", {}, {"CUDA_VISIBLE_DEVICES": ""}),
    ("0,1", {}, {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    ("auto", {}, {"POTATO_TRAINING_GPUS": "auto", "POTATO_TRAINING_MIN_FREE_GPU_MB": "2000",
                  "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    ("auto", {"CUDA_VISIBLE_DEVICES": "7"}, {"CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    ("0", {"CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "x"},
     {"CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "x"}),
])
def test_gpus(ssh, with_code, over_ssh, gpus, env, seen):
    agent = with_code.root / "code" / CODE / "potato_training" / "worker" / "agent.py"
    agent.write_text("import os\nfor k in os.environ:\n"
                     "    if k.startswith(('CUDA', 'POTATO')): print(k + '=' + os.environ[k])\n")
    answer = over_ssh(ssh(gpus=gpus, env=env)["launch.sh"], CODE, env=with_code.env)
    found = dict(line.split("=", 1) for line in answer.rest.decode().splitlines()[1:])
    assert found.pop("POTATO_TRAINING_INHERIT") == "yes"
    assert found == seen


# --- artifacts ------------------------------------------------------------------------------------------


def put(root, files):
    for name, data in files.items():
        path = root / "jobs" / "example" / "artifacts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.mark.parametrize("shell", SHELLS)
def test_artifacts_come_with_their_sizes_first(ssh, host, over_ssh, shell):
    files = {"a/model.safetensors": os.urandom(300_000), "a/config.json": b"{}", "-n $x *": b"odd", "empty": b""}
    put(host.root, files)
    put(host.root, {"a/huge.bin": bytes(2 << 20)})
    answer = over_ssh(ssh(max_artifact_mb=1)["send_artifacts.sh"], shell=shell, env=host.env)
    assert answer.returncode == 0
    head, _, tar = answer.said.partition(b" data\n")
    lines = head.decode().splitlines()
    assert sorted(line for line in lines if line.startswith("file=")) == sorted(
        f"file={len(data)} {name}" for name, data in files.items())
    assert [line for line in lines if line.startswith("left=")] == [f"left={2 << 20} a/huge.bin"]
    assert f"total={sum(map(len, files.values()))}" in lines
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        found = {m.name.removeprefix("./"): archive.extractfile(m).read() for m in archive if m.isfile()}
    assert found == files
    assert [p.name for p in (host.root / "jobs" / "example").iterdir()] == ["artifacts"]


@pytest.mark.parametrize(("keys", "left"), [({"fetch_artifacts": False}, ["left=2 m"]), ({"max_artifact_mb": 1}, [])])
def test_nothing_to_send(ssh, host, over_ssh, keys, left):
    if left:
        put(host.root, {"m": b"xx"})
    answer = over_ssh(ssh(**keys)["send_artifacts.sh"], env=host.env)
    assert answer.end == 0
    assert answer.values["total"] == ["0"]
    assert [f"left={x}" for x in answer.values.get("left", [])] == left


# --- removal --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("what", ["all", "all but artifacts"])
def test_removal(ssh, host, over_ssh, shell, what):
    put(host.root, {"m": b"xx"})
    job = host.root / "jobs" / "example"
    (job / "attach.json").write_text("secret")
    (job / ".hidden").touch()
    (job / "bundle").mkdir()
    (host.root / "jobs" / "another").mkdir()
    socket = Path(f"/tmp/p-{os.urandom(4).hex()}")
    socket.mkdir()
    (socket / "s").touch()
    keep = (host.home / "elsewhere")
    keep.mkdir()
    (job / "link").symlink_to(keep)
    answer = over_ssh(ssh()["remove_job.sh"], what, socket.as_posix(), shell=shell, env=host.env)
    assert answer.end == 0, answer.values
    assert not socket.exists()
    assert keep.exists()
    assert (host.root / "jobs" / "another").exists()
    if what == "all":
        assert not job.exists()
    else:
        assert [str(p.relative_to(job)) for p in sorted(job.rglob("*"))] == ["artifacts", "artifacts/m"]
        assert answer.values["kept"] == [f"{job}/artifacts"]
    assert over_ssh(ssh()["remove_job.sh"], what, "-", shell=shell, env=host.env).end == 0


def test_keep_remote_removes_only_the_token(ssh, host, over_ssh):
    put(host.root, {"m": b"xx"})
    job = host.root / "jobs" / "example"
    (job / "attach.json").write_text("secret")
    answer = over_ssh(ssh(keep_remote=True)["remove_job.sh"], "all", "-", env=host.env)
    assert answer.values["kept"] == [str(job)]
    assert [p.name for p in job.iterdir()] == ["artifacts"]


@pytest.mark.parametrize(("what", "socket"), [("", "-"), ("everything", "-"), ("all", "/tmp/p-x/../../home")])
def test_a_removal_that_nobody_meant(ssh, host, over_ssh, what, socket):
    put(host.root, {"m": b"xx"})
    assert over_ssh(ssh()["remove_job.sh"], what, socket, env=host.env).end == 1
    assert (host.root / "jobs" / "example" / "artifacts" / "m").exists()


# --- venv -----------------------------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path):
    """A package of one module, as a wheel in a directory with a space."""
    path = tmp_path / "wheels of mine" / "tiny_thing-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_thing.py", "VALUE = 42\n")
        about = "tiny_thing-1.0.dist-info/"
        archive.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        archive.writestr(about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(about + "RECORD", "tiny_thing.py,,\n")
    return path


@pytest.mark.slow
def test_a_venv_is_made_once_and_shows_the_base_packages(ssh, host, over_ssh, wheel):
    from concurrent.futures import ThreadPoolExecutor

    files = ssh(packages=[str(wheel)], env={"PIP_NO_INDEX": "1"})
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: over_ssh(files["venv.sh"], hold=True, env=host.env), range(2)))
    assert [a.end for a in answers] == [0, 0], [(a.values, a.stderr) for a in answers]
    assert sum("pip" in a.values for a in answers) == 1
    python = Path(answers[0].values["python"][0])
    assert python.parent.parent.parent == host.root / "venvs"
    said = subprocess.run([python, "-c", "import tiny_thing, pytest; print(tiny_thing.VALUE)"], capture_output=True,
                          text=True, env={})
    assert said.stdout == "42\n", said.stderr        # pytest is a package of the base, itself a venv
    values = over_ssh(files["probe.sh"], CODE, "-", "tiny_thing", env=host.env).values
    assert values["venv"] == ["there"]
    assert values["module"] == ["tiny_thing there"]

    stamp = python.parent.parent / "COMPLETE"
    stamp.write_text("/another/python 3.7.1\n")      # the interpreter has changed: made anew
    marker = python.parent.parent / "marker"
    marker.touch()
    assert over_ssh(files["venv.sh"], hold=True, env=host.env).end == 0
    assert not marker.exists()
    before = time.time_ns()
    assert over_ssh(files["venv.sh"], hold=True, env=host.env).end == 0
    assert stamp.stat().st_mtime_ns < before


@pytest.mark.slow
def test_packages_that_cannot_be_installed(ssh, host, over_ssh):
    files = ssh(packages=["no-such-package-at-all==1"], env={"PIP_NO_INDEX": "1"})
    answer = over_ssh(files["venv.sh"], hold=True, env=host.env)
    assert answer.end == 1
    assert "could not be installed" in answer.values["error"][0]
    assert any("no-such-package-at-all" in line for line in answer.values["pip"])
    assert over_ssh(files["probe.sh"], CODE, "-", "", env=host.env).values["venv"] == ["missing"]


def test_one_venv_for_the_same_packages_in_any_order(compiled):
    def venv(**keys):
        return compiled("ssh", **keys).spec.place.venv

    assert venv(packages=["a", "b"]) == venv(packages=["b", "a"])
    assert venv(packages=["a", "b"]) != venv(packages=["a"])
    assert venv(packages=["a"]) != venv(packages=["a"], python="/other/python")
    assert venv(packages=[]) == ""
