"""The store of code on a host, tidied beside servers that prune and jobs that copy."""

from __future__ import annotations

import os
import shutil

import pytest
from potato_training.worker import tidy


@pytest.fixture
def store(tmp_path):
    """Four copies, the last of them new."""
    for n, name in enumerate(["aa", "bb", "cc", "dd"]):
        package = tmp_path / name / "potato_training"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"NUMBER = {n}\n")
        os.utime(tmp_path / name, (1000 + n, 1000 + n))
    return tmp_path


@pytest.fixture(autouse=True)
def as_nice_as_before(monkeypatch):
    monkeypatch.setattr(os, "nice", lambda by: 0)


def test_three_stay_and_the_new_one_is_compiled(store):
    tidy.main(str(store), "dd")
    assert sorted(path.name for path in store.iterdir()) == ["bb", "cc", "dd"]
    assert len(list(store.glob("*/potato_training/__pycache__/__init__.*.pyc"))) == 1


def test_one_that_was_used_meanwhile_stays(store, monkeypatch):
    seen = []

    def used(place, entry):
        seen.append(entry)
        return 1000.0 + "abcd".index(entry[0]) + (5000 if seen.count("aa") > 1 else 0)

    monkeypatch.setattr(tidy, "used", used)
    tidy.prune(str(store), str(store / ".dd.1.tidy"))
    assert (store / "aa" / "potato_training" / "__init__.py").exists()


def test_a_copy_that_is_pruned_while_it_is_compiled_stays_gone(store, monkeypatch):
    """No directory with nothing but bytecode in it may stand where jobs look for code."""
    compile_one = tidy.py_compile.compile

    def pruned(*arguments, **options):
        compile_one(*arguments, **options)
        shutil.rmtree(store / "dd")

    monkeypatch.setattr(tidy.py_compile, "compile", pruned)
    with pytest.raises(FileNotFoundError):
        tidy.main(str(store), "dd")
    assert sorted(path.name for path in store.iterdir()) == ["bb", "cc"]
