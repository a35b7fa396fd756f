"""The ledger: moves forward, keeps wishes, survives a second process."""

import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from potato_training.runtime import database, debts
from potato_training.runtime.database import StoreTooNew
from potato_training.runtime.store import Store
from potato_training.schema.errors import UserError


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store.sqlite")


def insert(store, run_id="r1"):
    return store.insert(
        run_id, trainer="sklearn-text", schemas=("sentiment",), params={"c": 1}, backend="local",
        config="config.yaml", trigger="cli", started_by="ada",
    )


def test_a_run_comes_back_as_it_was_put_in(store):
    insert(store)
    run = store.get("r1")
    assert (run.trainer, run.schemas, run.params, run.state) == ("sklearn-text", ("sentiment",), {"c": 1}, "queued")
    assert not run.over
    assert store.get("r2") is None


def test_moves_go_forward_only(store):
    insert(store)
    assert store.advance("r1", "running")
    assert not store.advance("r1", "building")
    assert not store.advance("r1", "running")
    assert store.advance("r1", "failed", reason="it broke", hint="mend it")
    assert not store.advance("r1", "succeeded")
    run = store.get("r1")
    assert (run.state, run.reason, run.hint, run.over) == ("failed", "it broke", "mend it", True)
    assert run.ended is not None
    assert list(run.facts["timings"]) == ["queued", "running", "failed"]


def test_a_run_has_started_when_it_has_left_the_queue_to_be_done(store):
    assert insert(store).started is None
    store.advance("r1", "building")
    begun = store.get("r1").started
    store.advance("r1", "running")
    store.advance("r1", "cancelling")
    assert store.get("r1").started == begun == store.get("r1").facts["timings"]["building"]
    insert(store, "r2")
    store.advance("r2", "cancelled")
    assert store.get("r2").started is None, "it never was"


def test_a_success_does_not_pass_a_cancel_that_was_left_before_it(store):
    insert(store)
    store.advance("r1", "fetching")
    assert store.wish("r1", "cancel") == "left"
    assert not store.advance("r1", "succeeded", unless_wish="cancel")
    assert store.advance("r1", "cancelled")


def test_facts_are_merged_one_level_deep(store):
    insert(store)
    store.note("r1", machine={"host": "a"}, n=1)
    store.note("r1", machine={"python": "3.11"}, n=2, step="training")
    run = store.get("r1")
    assert run.facts["machine"] == {"host": "a", "python": "3.11"}
    assert run.facts["n"] == 2
    assert run.step == "training"


def test_a_warning_is_kept_once(store):
    insert(store)
    for _ in range(3):
        store.record("r1", warnings=["one class is rare"])
    assert store.get("r1").facts["warnings"] == ["one class is rare"]


def test_the_step_line_of_a_state_left_behind_is_not_shown(store):
    insert(store)
    store.record("r1", moves=[(1, "running", "training")])
    store.record("r1", moves=[(1, "preparing", "starting the worker")])
    assert (store.get("r1").state, store.get("r1").step) == ("running", "training")
    store.record("r1", moves=[(1, "running", "epoch 2"), (1, "", "still epoch 2")])
    assert store.get("r1").step == "still epoch 2"


def test_wishes(store):
    insert(store)
    assert store.wish("nope", "cancel") == "unknown"
    assert store.wish("r1", "keep") == "left"
    assert store.wish("r1", "cancel") == "left"
    assert store.wish("r1", "keep") == "left"
    assert store.get("r1").wish == "cancel"
    store.advance("r1", "cancelled")
    assert store.wish("r1", "cancel") == "over"


def test_the_queue_keeps_its_order_and_forgets_what_is_settled(store):
    for name in ("b", "a", "c"):
        insert(store, name)
    store.settle("a")
    assert [run.run_id for run in store.open_runs()] == ["b", "c"]
    assert [run.run_id for run in store.runs()] == ["c", "a", "b"]


def test_a_release_stays_until_it_is_confirmed(store):
    insert(store)
    store.owe("r1", "local", {"x": 1})
    store.release_failed("r1", "no answer")
    (release,) = store.releases()
    assert (release.target, release.tries, release.last_error) == ({"x": 1}, 1, "no answer")
    store.released("r1")
    assert store.releases() == []


def test_a_debt_that_rests_starts_nobody(store):
    insert(store)
    assert not debts.press(store)
    store.owe("r1", "ssh", {})
    assert debts.press(store)
    (release,) = store.releases()
    assert debts.give_up(store, release, "nobody answers").startswith("nobody answers; no longer tried")
    assert debts.rests(store, release)
    assert not debts.press(store)
    insert(store, "r2")
    store.owe("r2", "ssh", {})
    assert debts.press(store)


def test_another_process_writes_the_same_ledger(store, tmp_path):
    insert(store)
    code = (
        "import sys; from pathlib import Path; from potato_training.runtime.store import Store\n"
        "s = Store(Path(sys.argv[1]))\n"
        "for i in range(50): s.note('r1', **{'k%d' % i: i})\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code.replace("'k", f"'{name}"), str(tmp_path / "store.sqlite")])
        for name in "pq"
    ]
    assert [child.wait(60) for child in children] == [0, 0]
    facts = store.get("r1").facts
    assert all(facts[f"{name}{i}"] == i for name in "pq" for i in range(50))


def test_the_files_are_for_the_owner_only(tmp_path):
    old = os.umask(0)
    try:
        store = Store(tmp_path / "store.sqlite")
        insert(store)
        for file in tmp_path.iterdir():
            assert file.stat().st_mode & 0o077 == 0, file
    finally:
        os.umask(old)


def test_a_ledger_of_a_newer_program_is_left_alone(tmp_path):
    path = tmp_path / "store.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    with pytest.raises(StoreTooNew):
        Store(path)


def test_many_who_open_a_fresh_ledger_at_once(tmp_path):
    """SQLite waits for nobody when it turns a fresh file's log on: one in a hundred was refused."""
    code = ("import sys, pathlib; from potato_training.runtime.store import Store\n"
            "sys.stdin.read(1)\n"
            "for n in range(150): Store(pathlib.Path(sys.argv[1], str(n))).runs()\n")
    children = [subprocess.Popen([sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(6)]
    for child in children:
        child.stdin.close()
    said = [child.stderr.read().decode() for child in children]
    assert ([child.wait() for child in children], said) == ([0] * 6, [""] * 6)


def test_a_folder_that_vanishes_is_named_and_a_new_one_is_used_by_every_thread(tmp_path):
    folder = tmp_path / "training"
    folder.mkdir()
    store = Store(folder / "store.sqlite")
    insert(store)
    folder.rename(tmp_path / "away")

    def elsewhere(what):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(what).result()

    for ask in (store.runs, lambda: elsewhere(store.runs), lambda: insert(store)):
        with pytest.raises(UserError, match=r"training is gone") as caught:
            ask()
        assert "start a run" in caught.value.hint
    folder.mkdir()
    insert(Store(folder / "store.sqlite"), "fresh")
    assert [run.run_id for run in store.runs()] == [run.run_id for run in elsewhere(store.runs)] == ["fresh"]
    shutil.rmtree(folder)
    (tmp_path / "away").rename(folder)
    assert [run.run_id for run in store.runs()] == ["r1"]


def test_a_ledger_in_a_folder_that_may_not_be_written_says_what_to_do(tmp_path, monkeypatch):
    Store(tmp_path / "store.sqlite").close()
    monkeypatch.setattr(database.os, "access", lambda path, mode: False)
    assert Store(tmp_path / "store.sqlite").runs() == []  # nothing needs writing: it is read all the same

    def refuse(db):
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(database, "_use_wal", refuse)
    with pytest.raises(UserError, match=r"store\.sqlite cannot be opened: .* is not writable") as caught:
        Store(tmp_path / "store.sqlite")
    assert "copy the project" in caught.value.hint
