"""What a host says of itself, and what a run and ``check`` make of it: every message provoked for real."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

pytestmark = pytest.mark.real

SMI = """#!/bin/sh
case "$*" in
  *-L*) cat << 'END'
{listing}
END
    ;;
  *query-gpu=uuid,name,memory.free*) printf '%s\\n' '{short}' ;;
  *) cat << 'END'
{cards}
END
    ;;
esac
"""

TWO = [("0", "GPU-aaaa", "NVIDIA A100-SXM4-80GB", "81559", "312", "97"),
       ("1", "GPU-bbbb", "NVIDIA A100-SXM4-80GB", "81559", "70000", "3")]


def nvidia_smi(study, cards=TWO, listing=None, text=None):
    """A make-believe nvidia-smi, first on the account's PATH."""
    lines = "\n".join(", ".join(card) for card in cards)
    short = "\\n".join(", ".join((card[1], card[2], card[4])) for card in cards)
    listing = listing or "\n".join(f"GPU {c[0]}: {c[2]} (UUID: {c[1]})" for c in cards)
    made = SMI.format(cards=lines, listing=listing, short=short).replace("'%s\\n' '", "'%b\\n' '")
    program = study.account.program("bin/nvidia-smi", text or made)
    study.backend(env={"PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin"})
    return program


TORCH = """
import sys
__version__ = "2.1.0"
class _Float:
    def item(self): return 0
class _Tensor:
    def __init__(self, number): self.number = number
    def __matmul__(self, other):
        if self.number in {bad}:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        if {late!r} and sys.argv[0].endswith("worker/__main__.py"):
            raise RuntimeError({late!r})
        return self
    def sum(self): return _Float()
def ones(*shape, device="cpu"):
    return _Tensor(int(device.split(":")[1]))
class cuda:
    device_count = staticmethod(lambda: {count})
    get_arch_list = staticmethod(lambda: ["sm_70", "sm_75"])
    get_device_capability = staticmethod(lambda n=0: (9, 0))
    get_device_name = staticmethod(lambda n=0: "NVIDIA H100")
    is_available = staticmethod(lambda: True)
    synchronize = staticmethod(lambda n=0: None)
class backends:
    mps = None
"""


def torch_stub(study, bad=(), count=2, late=""):
    """A torch without code for the cards in ``bad``, and the rest of the trainer's packages; ``late``: what it
    says to the worker, and not before."""
    site = study.account.home / "stub" / "site"
    study.account.put("stub/site/torch.py", TORCH.format(bad=set(bad) or "()", count=count, late=late))
    for name in ("transformers", "peft", "safetensors"):
        study.account.put(f"stub/site/{name}.py", "")
    study.account.program(
        "stub/python3", f'#!/bin/sh\nPYTHONPATH={site}${{PYTHONPATH:+:$PYTHONPATH}} exec /usr/bin/python3 "$@"\n')
    study.backend(python=str(study.account.home / "stub" / "python3"))


def check(study, *more):
    ran = study.potato("training", "check", "gpu-server", *more)
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran


def run_fails(study, reason, trainer="test-quick"):
    ran = study.potato("training", "run", "--trainer", trainer)
    assert ran.returncode == 1, ran.stdout
    (run, *_) = study.runs()
    assert run.reason == reason or run.reason.startswith(reason), (run.reason, study.log(run.run_id))
    study.ended(run.run_id)
    study.nothing_is_left()
    return run


def both(study, reason, trainer="test-quick"):
    """The reason, said by check and by a run."""
    ran = check(study, "--trainer", trainer)
    assert ran.returncode == 1
    assert reason in ran.stdout, ran.stdout
    return run_fails(study, reason, trainer), ran.stdout


# --- the login ----------------------------------------------------------------------------------


def test_permission_denied(remote, tmp_path):
    study = remote()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    study.backend(identity_file=str(tmp_path / "other"))
    (study.root / "ssh_config").write_text(
        (study.root / "ssh_config").read_text().replace(f"IdentityFile {study.lab.root}/key", "IdentityFile none"))
    run, said = both(study, "ssh to gpu.example.org failed: Permission denied")
    for told in (run.hint, said):
        assert f"`ssh -i {tmp_path}/other gpu.example.org true` must succeed" in told


def test_an_unknown_host_key(remote, tmp_path):
    study = remote()
    (tmp_path / "empty").touch()
    study.ssh_config(more=f"GlobalKnownHostsFile {tmp_path}/empty")
    text = (study.root / "ssh_config").read_text()
    (study.root / "ssh_config").write_text(text.replace(f"{study.lab.root}/known_hosts", f"{tmp_path}/empty"))
    run, _ = both(study, "ssh to gpu.example.org failed: Host key verification failed")
    assert "log in once by hand to accept the key" in run.hint


def test_a_changed_host_key(remote, tmp_path):
    study = remote()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    public = (tmp_path / "key.pub").read_text().rsplit(" ", 1)[0]
    (tmp_path / "known").write_text(f"[127.0.0.1]:{study.sshd.port} {public}\n")
    text = (study.root / "ssh_config").read_text()
    (study.root / "ssh_config").write_text(text.replace(f"{study.lab.root}/known_hosts", f"{tmp_path}/known"))
    run, _ = both(study, "ssh to gpu.example.org failed: Host key verification failed")
    assert "mend known_hosts" in run.hint
    assert "ssh-keygen" in run.hint


@pytest.mark.parametrize(("more", "reason"), [
    ("Port 1", "ssh to gpu.example.org failed: Connection refused"),
    ("ProxyCommand false", "ssh to gpu.example.org failed: "),
])
def test_nobody_there(remote, more, reason):
    study = remote()
    text = (study.root / "ssh_config").read_text().replace(f"Port {study.sshd.port}", "")
    (study.root / "ssh_config").write_text(text + f"  {more}\n")
    both(study, reason)


def test_a_host_that_forbids_forwarded_sockets(remote, lab):
    study = remote(server=lab.serve("AllowStreamLocalForwarding no"))
    both(study, "gpu.example.org does not allow forwarded sockets (AllowStreamLocalForwarding)")


def test_a_host_that_prints_and_never_runs_us(remote, lab):
    study = remote(server=lab.serve("ForceCommand echo 'Welcome to the jump host'"))
    run, _ = both(study, "host gpu.example.org prints text before our command")
    assert 'first bytes: "Welcome to the jump host"' in run.reason
    assert "silent for non-interactive shells" in run.hint


# --- the interpreter --------------------------------------------------------------------------------


def test_an_interpreter_that_is_not_there(remote):
    study = remote(python="/opt/conda/bin/python3")
    run, _ = both(study, "/opt/conda/bin/python3 was not found on gpu.example.org")
    assert "point `python` at an interpreter that exists there" in run.hint
    assert "/usr/bin/python3" in run.hint


def test_an_interpreter_that_is_too_old(remote):
    study = remote()
    old = study.account.program(
        "bin/python", '#!/bin/sh\ncase "$*" in *version_info\\[:3\\]*) echo 3.6.8 ;; *) exit 1 ;; esac\n')
    study.backend(python=str(old))
    both(study, f"{old} on gpu.example.org is Python 3.6.8; 3.8 or newer is needed")


def test_a_trainer_whose_packages_are_missing(remote):
    study = remote()
    ran = check(study, "--trainer", "sklearn-text")
    assert ran.returncode == 1
    assert "sklearn-text needs packages that are not installed there: " in ran.stdout
    assert " -m pip install " in ran.stdout, "of the interpreter that lacks them"
    run = run_fails(study, "Trainer 'sklearn-text' could not be imported: No module named '", "sklearn-text")
    assert run.hint


def test_packages_that_the_first_run_installs_count_as_there(remote):
    study = remote(packages=["scikit-learn>=1.3", "skops"])
    ran = check(study, "--trainer", "sklearn-text", "--json")
    said = json.loads(ran.stdout)
    assert "sklearn" in said["installed_by_first_run"]
    assert "sklearn" not in said["missing_packages"]


# --- GPUs -----------------------------------------------------------------------------------------------


def test_the_freest_gpu_is_named(remote):
    study = remote()
    nvidia_smi(study)
    ran = check(study, "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout
    assert "GPU 0 NVIDIA A100-SXM4-80GB: 312 of 81559 MB free, 97 % busy" in ran.stdout
    assert "a run would get GPU 1 NVIDIA A100-SXM4-80GB: 70000 of 81559 MB free" in ran.stdout
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout
    assert "GPU: GPU 1 NVIDIA A100-SXM4-80GB: 70000 of 81559 MB free" in ran.stdout
    assert "the worker gets GPU NVIDIA A100-SXM4-80GB (GPU-bbbb)" in ran.stdout
    assert "CUDA_VISIBLE_DEVICES=GPU-bbbb" in ran.stdout
    study.nothing_is_left()


def test_no_gpu_has_enough_memory(remote):
    study = remote(min_free_gpu_mb=4000)
    nvidia_smi(study, cards=[(*TWO[0][:4], "312", "97")])
    run, _ = both(study, "No GPU has 4000 MB free")
    assert "GPU 0 NVIDIA A100-SXM4-80GB: 312 of 81559 MB free" in run.hint
    assert "wait, lower min_free_gpu_mb, or pin one with gpus" in run.hint


def test_a_pinned_gpu_starts_however_full_it_is(remote):
    study = remote(min_free_gpu_mb=4000, gpus="0")
    nvidia_smi(study)
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout
    assert "CUDA_VISIBLE_DEVICES=0" in ran.stdout
    study.backend(gpus="7")
    both(study, "gpu.example.org has no GPU 7")


def test_gpus_none_and_a_variable_of_the_config_ask_nobody(remote):
    study = remote(gpus="none")
    nvidia_smi(study, text="#!/bin/sh\nexit 18\n")
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout
    assert "CUDA_VISIBLE_DEVICES=\n" in ran.stdout + "\n"


def test_a_broken_driver_is_never_a_cpu(remote):
    study = remote()
    words = "Failed to initialize NVML: Driver/library version mismatch"
    nvidia_smi(study, text=f"#!/bin/sh\necho '{words}'\nexit 18\n")
    both(study, f"nvidia-smi on gpu.example.org failed (18): {words}; the host needs a reboot")


@pytest.mark.slow
def test_a_driver_that_hangs(remote):
    study = remote()
    nvidia_smi(study, text="#!/bin/sh\nexec sleep 600\n")
    ran = check(study, "--trainer", "test-quick")
    assert ran.returncode == 1
    assert "nvidia-smi on gpu.example.org gave no answer within 20 seconds" in ran.stdout


@pytest.mark.parametrize("text", ["#!/bin/sh\necho 'No devices were found'\nexit 6\n",
                                  "#!/bin/sh\necho 'No devices were found'\n"])
def test_no_devices_is_the_cpu(remote, text):
    study = remote()
    nvidia_smi(study, text=text)
    ran = check(study, "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout
    assert "a run would get CPU: no GPU there" in ran.stdout


def test_fields_that_cannot_be_read_are_unknown(remote):
    study = remote(min_free_gpu_mb=8000)
    nvidia_smi(study, cards=[("0", "GPU-aaaa", "NVIDIA H100", "81559", "[Insufficient Permissions]", "[N/A]"),
                             ("1", "GPU-bbbb", "NVIDIA A10", "24576", "20000", "[N/A]")])
    assert "a run would get GPU 1 NVIDIA A10: 20000 of 24576 MB free" in check(study, "--trainer", "test-quick").stdout
    nvidia_smi(study, cards=[("0", "GPU-aaaa", "NVIDIA H100", "[N/A]", "[N/A]", "[N/A]")])
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 0
    assert "CUDA_VISIBLE_DEVICES" not in ran.stdout, "the only card is used as it is"
    nvidia_smi(study, cards=[(str(n), f"GPU-{n}", "NVIDIA H100", "[N/A]", "[N/A]", "[N/A]") for n in range(2)])
    both(study, "free GPU memory is not readable on gpu.example.org; set CUDA_VISIBLE_DEVICES in env")


def test_slices_are_cards_of_their_own(remote):
    study = remote()
    listing = ("GPU 0: NVIDIA A100 (UUID: GPU-aaaa)\n  MIG 3g.20gb     Device  0: (UUID: MIG-1111)\n"
               "  MIG 3g.20gb     Device  1: (UUID: MIG-2222)\nGPU 1: NVIDIA A10 (UUID: GPU-bbbb)")
    nvidia_smi(study, [("0", "GPU-aaaa", "NVIDIA A100", "40960", "[N/A]", "[N/A]"),
                       ("1", "GPU-bbbb", "NVIDIA A10", "24576", "20000", "5")], listing)
    said = json.loads(check(study, "--trainer", "test-quick", "--json").stdout)
    assert [card["uuid"] for card in said["gpus"]] == ["MIG-1111", "MIG-2222", "GPU-bbbb"]
    assert said["would_get"]["uuid"] == "GPU-bbbb"


def test_a_gpu_that_this_torch_has_no_kernels_for_is_passed_over(remote):
    study = remote()
    torch_stub(study, bad=[1])
    nvidia_smi(study, cards=[(*TWO[0][:4], "9000", "0"), TWO[1]])
    ran = check(study)
    assert "70000 of 81559 MB free, 3 % busy (torch there has no kernels for it)" in ran.stdout
    assert "a run would get GPU 0 " in ran.stdout
    assert ran.returncode == 0, ran.stdout


def test_no_gpu_that_this_torch_has_kernels_for(remote):
    study = remote()
    torch_stub(study, bad=[0, 1])
    nvidia_smi(study)
    run, _ = both(study, "This host's torch has no kernels for any of its GPUs", "hf-text-classification")
    assert "sm_90" in run.hint
    assert "built for sm_70 sm_75" in run.hint


@pytest.mark.parametrize(("words", "reason", "hint"), [
    ("nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure that libnvrtc-builtins.so.13.0 is installed",
     "nvrtc: error: failed to open libnvrtc-builtins.so.13.0", "install the nvidia-cuda-nvrtc that matches"),
    ("CUDA error: no kernel image is available for execution on the device",
     "This host's torch has no kernels for any of its GPUs: NVIDIA H100 (sm_90)", "a torch build for those GPUs"),
])
def test_a_torch_that_fails_only_in_the_worker(remote, words, reason, hint):
    """The look at the host was fine; the message is the same as if it had not been."""
    study = remote()
    torch_stub(study, late=words)
    nvidia_smi(study)
    ran = check(study, "--trainer", "hf-text-classification")
    assert ran.returncode == 0, ran.stdout
    run = run_fails(study, reason, "hf-text-classification")
    assert hint in run.hint


def test_two_runs_on_one_host_get_two_cards(remote, project, wait_until, lab):
    """Two servers that know nothing of each other: the lock of a card is held by the worker itself."""
    study = remote()
    other = type(study)(project("multi-project"), wait_until, lab, study.account)
    try:
        other.ssh_config()
        cards = [(*TWO[0][:4], "69000", "0"), TWO[1]]
        nvidia_smi(study, cards)
        nvidia_smi(other, cards)
        first, first_id = study.train("test-slow", steps=100000, step_seconds=0.05)
        study.reaches(first_id, "running")
        second, second_id = other.train("test-slow", steps=100000, step_seconds=0.05)
        other.reaches(second_id, "running")
        wait_until(lambda: "CUDA_VISIBLE_DEVICES=GPU-bbbb" in study.log(first_id), "the first card")
        wait_until(lambda: "CUDA_VISIBLE_DEVICES=GPU-aaaa" in other.log(second_id), "the other card")
        for one, process, run_id in ((study, first, first_id), (other, second, second_id)):
            one.potato("training", "cancel", run_id, check=True)
            one.finish(process)
            one.ended(run_id)
        study.nothing_is_left()
    finally:
        other.close()


# --- room and rights ----------------------------------------------------------------------------------------


def test_a_remote_dir_that_cannot_be_written(remote):
    study = remote(remote_dir="/proc/nothing")
    run, _ = both(study, "")
    assert "cannot write to /proc/nothing" in run.reason


def test_code_that_another_account_has_laid_out_is_never_run(remote, lab):
    """A directory that everyone may write to, and somebody was there first."""
    shared = lab.root / "shared"
    (shared / "code").mkdir(parents=True)
    shared.chmod(0o777)
    both(remote(remote_dir=str(shared)), f"{shared}/code on ")


@pytest.fixture
def small_disk(lab):
    """A file system of its own in the account's home, nearly full."""
    account = lab.account("bash")
    place = account.home / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=8m,uid={account.uid},mode=0700", "tmpfs", str(place)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no small file system here: {done.stderr.strip()}")
    yield place
    account.kill()
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_told_before_anything_is_copied(remote, small_disk):
    study = remote(remote_dir=str(small_disk))
    run = run_fails(study, "no space left on gpu.example.org: ")
    assert run.reason.endswith(f" MB free in {small_disk}")
    assert "point remote_dir at another file system" in run.hint


def test_check_leaves_nothing(remote):
    study = remote()
    words = study.root / "ssh.words"
    wrapper = study.bin / "ssh"
    wrapper.write_text(wrapper.read_text().replace("exec ", f'echo "$*" >> {words}\nexec '))
    assert check(study, "--trainer", "test-quick").returncode == 0
    kept = set(re.findall(r"-S (/tmp/p-[0-9a-f]{8})/c ", words.read_text()))
    assert len(kept) == 1
    assert not any(os.path.exists(directory) for directory in kept)
    assert study.account.sockets() == []
    assert not study.ssh_processes()
    study.wait_until(lambda: not study.account.processes(), "the end of the login's shell")


def test_a_clock_that_is_far_off_is_named(remote):
    study = remote()
    program = study.account.program("bin/date", "#!/bin/sh\necho 1000000000\n")
    study.account.put(".bashrc", f"export PATH={program.parent}:$PATH\n")
    ran = check(study, "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout
    note = r"note: the clock of gpu\.example\.org is \d{7,} s behind this machine's"
    assert re.search(note, ran.stdout), ran.stdout
    ran = study.potato("training", "run", "--trainer", "test-quick")
    assert ran.returncode == 0, ran.stdout
    assert re.search(note, study.log(study.runs()[0].run_id))
