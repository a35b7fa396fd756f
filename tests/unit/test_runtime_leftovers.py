"""What killed processes have left under /tmp goes, and nothing else does."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path

import pytest
from potato_training.runtime.leftovers import sweep


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as short:  # a socket's path may have 107 bytes
        yield Path(short)


def test_only_old_ones_that_answer_nobody_go(folder):
    listening = []

    def make(name, *, listens=False, old=True):
        place = folder / name
        place.mkdir()
        one = socket.socket(socket.AF_UNIX)
        one.bind(str(place / "s"))
        if listens:
            one.listen()
            listening.append(one)
        else:
            one.close()
        (place / "master.json").write_text("{}")
        if old:
            os.utime(place, (1, 1))

    make("p-00000001")
    make("p-00000002", listens=True)
    make("p-00000003", old=False)
    make("p-0000000x")
    make("elsewhere")
    (folder / "p-00000004").symlink_to("elsewhere")
    (folder / "p-00000005").write_text("a file")
    (folder / "p-00000006").mkdir()
    os.utime(folder / "p-00000006", (1, 1))
    before = {path.name for path in folder.iterdir()}
    sweep(time.time(), str(folder))
    assert before - {path.name for path in folder.iterdir()} == {"p-00000001", "p-00000006"}
    assert (folder / "elsewhere" / "s").is_socket()
    for one in listening:
        one.close()


def test_no_folder_is_no_trouble(folder):
    sweep(time.time(), str(folder / "missing"))
