"""The pure parts of the ssh backend: words of ssh, cards, frames, and archives of strangers."""

from __future__ import annotations

import io
import re
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.runtime.launchers import Unwelcome
from potato_training.runtime.ssh import code, gpus
from potato_training.runtime.ssh.connection import Ssh, remote_command
from potato_training.runtime.ssh.explain import failure
from potato_training.runtime.ssh.held import Held
from potato_training.runtime.ssh.probe import clock_note
from potato_training.runtime.ssh.talk import Result, SshError
from potato_training.runtime.ssh.untar import BadArchive, untar

FACTS = {"gpus": "auto", "gpu_is_set": False, "min_free_gpu_mb": 2000}


def said(**values):
    return Result((), values={key: list(value) for key, value in values.items()})


def test_a_host_that_begins_with_a_dash_stays_a_host():
    argv = Ssh("-oProxyCommand=x", user="u", port=2222).argv(command="true")
    assert argv[-3:] == ("--", "-oProxyCommand=x", "true")
    assert argv[argv.index("-l") + 1] == "u"
    assert argv[argv.index("-p") + 1] == "2222"
    assert "BatchMode=yes" in argv


def test_what_the_config_does_not_say_is_left_to_the_users_own():
    argv = Ssh("gpu").argv()
    assert not {"-l", "-p", "-i", "-S"} & set(argv)


def test_the_users_config_has_no_say_in_what_a_kept_connection_is_told():
    argv = Ssh("gpu", user="u", identity_file="/k", control="/tmp/100%/c").word("forward", "-R", "/a:/b")
    assert argv == ("ssh", "-F", "none", "-S", "/tmp/100%%/c", "-O", "forward", "-R", "/a:/b", "--", "gpu")


def test_a_startup_file_that_may_not_read_something_is_no_refused_login():
    stderr = "bash: /etc/profile.d/x.sh: Permission denied\nConnection to gpu closed by remote host.\n"
    assert not isinstance(failure(Ssh("gpu"), SshError("ssh ended", stderr=stderr, code=255)), Unwelcome)
    refused = SshError("ssh ended", stderr="me@gpu: Permission denied (publickey).\n", code=255)
    assert isinstance(failure(Ssh("gpu"), refused), Unwelcome)


def test_the_remedy_is_the_login_that_the_config_asks_for():
    refused = SshError("ssh ended", stderr="me@gpu: Permission denied (publickey).\n", code=255)
    hint = failure(Ssh("gpu", "me", 2222, "/my keys/k"), refused).hint
    assert "`ssh -l me -p 2222 -i '/my keys/k' gpu true` must succeed" in hint
    unknown = SshError("ssh ended", stderr="Host key verification failed.\n", code=255)
    assert "accept the key (ssh -p 2222 gpu)" in failure(Ssh("gpu", port=2222), unknown).hint


def test_a_result_prints_as_one_would_type_it():
    result = Result(("ssh", "--", "gpu", remote_command(17)), "probe.sh")
    assert str(result) == """ssh -- gpu 'exec /bin/sh -c '"'"'eval "$(dd bs=1 count=17 2>/dev/null)"'"'"'' < probe.sh"""


@pytest.mark.parametrize(("stderr", "reason"), [
    ("Banner of the host\nme@gpu: Permission denied (publickey).\n", "Permission denied"),
    ("No ED25519 host key is known for gpu and you have requested strict checking.\n"
     "Host key verification failed.\n", "Host key verification failed"),
    ("ssh: Could not resolve hostname gpu: Name or service not known\n",
     "Could not resolve hostname gpu: Name or service not known"),
    ("ssh: connect to host gpu port 22: Connection timed out\n", "Connection timed out"),
    ("kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.1 port 22\n",
     "Connection closed by 10.0.0.1 port 22"),
    ("", "ssh ended (exit code 255)"),
])
def test_the_words_of_ssh(stderr, reason):
    assert str(failure(Ssh("gpu"), SshError("ssh ended", stderr=stderr, code=255))) == f"ssh to gpu failed: {reason}"


# --- cards ---------------------------------------------------------------------------------------------

FIELD = st.one_of(st.sampled_from(["[N/A]", "[Insufficient Permissions]", "", "Unknown Error", "-1"]),
                  st.integers(0, 200_000).map(str))


@given(st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=5))
def test_any_answer_of_nvidia_smi_is_a_choice_or_a_reason(rows):
    lines = [f"{n}, GPU-{n}, NVIDIA X, {', '.join(row)}" for n, row in enumerate(rows)]
    answer = said(nvidia_smi=["0"], gpu=lines)
    try:
        choice = gpus.choose(answer, "gpu", FACTS)
    except gpus.NoGpu as why:
        free = [card.free_mb for card in gpus.cards(answer)]
        known = [mb for mb in free if mb is not None]
        assert (not known and len(free) > 1) or (known and max(known) < 2000), (free, why)
        return
    if choice.candidates:
        known = {card.uuid: card.free_mb for card in gpus.cards(answer) if card.free_mb is not None}
        assert known[choice.candidates[0]] == max(known.values()) >= 2000


@pytest.mark.parametrize(("told", "note"), [
    ("1000", ""), ("1060", ""), ("940", ""), ("", ""), ("yesterday", ""),
    ("1300", "note: the clock of gpu is 300 s ahead of this machine's"),
    ("700", "note: the clock of gpu is 300 s behind this machine's"),
])
def test_a_clock_that_is_far_from_ours_is_named(told, note):
    assert clock_note(said(time=[told]), "gpu", 1000.2) == note


def test_an_answer_of_nvidia_smi_that_is_none_never_means_the_cpu():
    with pytest.raises(gpus.NoGpu, match="nvidia-smi on gpu gave an answer that cannot be read: license expired"):
        gpus.choose(said(nvidia_smi=["0"], gpu=["license expired", ""]), "gpu", FACTS)
    assert gpus.choose(said(nvidia_smi=["0"], gpu=[""]), "gpu", FACTS).words == "CPU: no GPU there"


@given(st.lists(st.text(max_size=60), max_size=8), st.lists(st.text(max_size=60), max_size=8))
def test_what_nobody_expected_never_breaks_the_reading(lines, devices):
    gpus.cards(said(gpu=lines, device=devices, kernels=lines))


def test_the_same_code_has_the_same_name_and_bytes():
    assert b"".join(code.archive()) == b"".join(code.archive())
    with tarfile.open(fileobj=io.BytesIO(b"".join(code.archive()))) as tar:
        names = tar.getnames()
        listed = tar.extractfile(names[-1]).read().decode().splitlines()
        sizes = [f"{member.size} {member.name}" for member in tar.getmembers()[:-1]]
    assert names[-1] == code.code_hash()
    assert listed == sizes == sorted(sizes, key=lambda line: line.split()[1].encode())
    assert all(re.fullmatch("[A-Za-z0-9_./]+", name) for name in names), "names that xargs would cut"
    assert "potato_training/__init__.py" in names
    assert "potato_training/worker/agent.py" in names
    assert all(name.startswith("potato_training/") for name in names[:-1])


def test_what_is_held_comes_back_as_it_was():
    held = Held().and_control("/tmp/p-00000001").and_door("/tmp/p-00000002", "/tmp/p-00000003/s")
    assert Held.of(held.to_json()) == held
    assert held.touched
    assert Held.of({}) == Held()


# --- archives ---------------------------------------------------------------------------------------------

NAMES = st.text("abc._-é", min_size=1, max_size=8).filter(lambda n: n not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
FILES = st.dictionaries(PATHS, st.binary(max_size=2000), max_size=5).filter(
    lambda files: not any(a != b and b.startswith(a + "/") for a in files for b in files))


def tar_of(files, format=tarfile.GNU_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


@given(FILES, st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT]), st.integers(1, 700))
def test_what_was_announced_arrives_in_whatever_pieces(tmp_path_factory, files, format, piece):
    target = tmp_path_factory.mktemp("here")
    stream = io.BytesIO(tar_of(files, format))
    untar(lambda most: stream.read(min(most, piece)), target, {name: len(data) for name, data in files.items()})
    found = {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}
    assert found == files


@given(FILES.filter(bool), st.data())
def test_a_damaged_archive_is_refused_or_brings_what_was_announced(tmp_path_factory, files, data):
    target = tmp_path_factory.mktemp("here")
    whole = bytearray(tar_of(files))
    if data.draw(st.booleans()):
        whole = whole[:data.draw(st.integers(0, len(whole) - 1))]
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
    stream = io.BytesIO(bytes(whole))
    sizes = {name: len(content) for name, content in files.items()}
    try:
        untar(stream.read, target, sizes)
    except BadArchive:
        return
    found = {str(p.relative_to(target)): p.stat().st_size for p in target.rglob("*") if p.is_file()}
    assert found == sizes


@given(st.binary(max_size=3000))
def test_noise_is_no_archive(tmp_path_factory, noise):
    stream = io.BytesIO(noise)
    with pytest.raises(BadArchive):
        untar(stream.read, tmp_path_factory.mktemp("here"), {"a": 1})
