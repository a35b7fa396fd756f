"""Files that appear whole, names that are data, digests of models."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.worker import files, processes


@given(names=st.lists(st.text(st.characters(exclude_categories=()), max_size=120), unique=True, max_size=8))
def test_directory_names_are_safe_and_distinct(names):
    found = files.directory_names(names)
    assert list(found) == names
    assert len({name.lower() for name in found.values()}) == len(names)
    for name in found.values():
        assert name and name == os.path.basename(name) and not name.startswith(".") and name.isascii()
        assert len(name) <= 100
    assert files.directory_names(names) == found


def test_a_plain_name_stays():
    assert files.directory_names(["sentiment", "topic.2"]) == {"sentiment": "sentiment", "topic.2": "topic.2"}


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "exit_code"
    files.write_whole(str(path), "1\n")

    def fail(fd):
        raise OSError(28, "full")
    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        files.write_whole(str(path), "2\n")
    assert path.read_text() == "1\n"


def test_the_digest_of_a_directory_is_of_names_and_contents(tmp_path):
    for k, (name, data) in enumerate([("a/b", "x"), ("a/b", "y"), ("a_b", "x"), ("a/b", "x")]):
        target = tmp_path / str(k) / name
        target.parent.mkdir(parents=True)
        target.write_text(data)
    digests = [files.digest_of_directory(str(tmp_path / str(k))) for k in range(4)]
    assert digests[0] == digests[3] and len(set(digests)) == 3


@pytest.fixture
def family():
    """A child that starts a grandchild in a session of its own; -> the grandchild's pid."""
    script = ("import subprocess, sys, time\n"
              "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
              "print(p.pid, flush=True); time.sleep(600)\n")
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    grandchild = int(child.stdout.readline())
    yield child, grandchild
    child.kill()
    child.wait()
    child.stdout.close()


def test_the_family_and_its_memory_are_seen_and_ended(family, wait_until):
    child, grandchild = family
    assert {child.pid, grandchild, os.getpid()} <= processes.family()
    assert os.getppid() not in processes.family()
    alone = processes.resident_mb()
    assert alone > 10
    script = "from potato_training.worker import processes; processes.kill_descendants()"
    # Only descendants: run from a process that has none, it must leave these alone.
    subprocess.run([sys.executable, "-c", script], check=True)
    assert child.poll() is None
    processes.kill_descendants()
    wait_until(lambda: child.poll() is not None and not alive(grandchild), "the end of the family")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False
