"""Starting an agent on a host: the job directory, the prelude, the GPUs."""

from __future__ import annotations

import os
import shutil

import pytest

SHELLS = ["sh", "bash", "dash"]
CODE = "0123abcdef"


@pytest.fixture
def with_agent(host, store):
    """``with_agent(text)``: an agent in the host's store of code; by default one that prints what it reads."""

    def put(agent="import os, sys\nprint('agent', sys.stdin.readline().strip(), os.getcwd())\n"):
        empty = dict.fromkeys(["potato_training/__init__.py", "potato_training/worker/__init__.py"], b"")
        store({**empty, "potato_training/worker/agent.py": agent.encode()})
        return host

    return put


@pytest.fixture
def with_code(with_agent):
    return with_agent()


@pytest.mark.parametrize("shell", SHELLS)
def test_launch_twice(ssh, with_code, over_ssh, shell):
    for _ in range(2):
        answer = over_ssh(ssh()["launch.sh"], CODE, tail=b"hello\n", shell=shell, env=with_code.env)
        job = with_code.root / "jobs" / "example"
        assert answer.end == 0, (answer.said, answer.stderr)
        assert answer.rest == f"0\nagent hello {job}\n".encode()
        assert sorted(p.name for p in job.iterdir()) == ["code"]
        shutil.rmtree(with_code.root / "code", ignore_errors=True)      # pruned meanwhile: the job has its own


@pytest.mark.parametrize("lost", ["agent.py", "__init__.py", "all", "none", "list"])
def test_launch_where_the_jobs_own_code_has_lost_files(ssh, with_code, over_ssh, lost):
    """Another login to a job that is at work for so long that what cleans a scratch disk came by."""
    launch = ssh()["launch.sh"]
    assert over_ssh(launch, CODE, tail=b"hello\n", env=with_code.env).end == 0
    code = with_code.root / "jobs" / "example" / "code"
    before = code.stat().st_ino
    for path in [p for p in code.rglob("*") if p.is_file()]:
        if lost == "all" or path.name == lost or (lost == "list" and path.parent == code):
            path.unlink()
    again = over_ssh(launch, CODE, tail=b"again\n", env=with_code.env)
    assert again.rest == f"0\nagent again {code.parent}\n".encode(), again.stderr
    assert (code.stat().st_ino == before) == (lost in ("none", "list"))
    assert sorted(p.name for p in code.parent.iterdir()) == ["code"]


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
def test_gpus(ssh, with_agent, over_ssh, gpus, env, seen):
    host = with_agent("import os\nfor k in os.environ:\n"
                      "    if k.startswith(('CUDA', 'POTATO')): print(k + '=' + os.environ[k])\n")
    answer = over_ssh(ssh(gpus=gpus, env=env)["launch.sh"], CODE, env=host.env)
    found = dict(line.split("=", 1) for line in answer.rest.decode().splitlines()[1:])
    assert found.pop("POTATO_TRAINING_INHERIT") == "yes"
    assert found == seen
