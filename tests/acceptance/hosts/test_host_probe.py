"""The look at a host or a login node, and the one line that every login shell understands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SHELLS = ["sh", "bash", "dash"]
CODE = "0123abcdef"


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
def test_the_probe_says_what_is_there(ssh, host, store, over_ssh, shell):
    cards = ["0, GPU-a, NVIDIA A100, 40960, 30000, 5", "1, GPU-b, NVIDIA T4, [N/A], [N/A], [N/A]"]
    host.program("nvidia-smi", gpu_lines(*cards))
    store({"potato_training/__init__.py": b"# nothing\n"})
    env = {**host.env, "BLOCK_SIZE": "1024", "QUOTING_STYLE": "shell-always"}
    answer = over_ssh(ssh()["probe.sh"], CODE, "-", "json no_such_module os.path", shell=shell, env=env)
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
