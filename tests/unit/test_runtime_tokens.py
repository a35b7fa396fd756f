"""Tokens in the ledger: found whatever their number, ended by a new one, and seen."""

from __future__ import annotations

import pytest
from potato_training.runtime import intake, tokens
from potato_training.runtime.places import Places
from potato_training.runtime.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs.db")


def seen(store):
    return {row["name"]: row["last_seen"] for row in store.tokens()}


def test_each_token_names_its_owner_and_nothing_else_names_anybody(store):
    made = {name: tokens.issue(store, tokens.BACKEND, name) for name in ("a", "b")}
    of_a_run = tokens.issue(store, tokens.RUN, "a")
    assert tokens.owner(store, made["a"]) == ("backend", "a")
    assert tokens.owner(store, of_a_run) == ("run", "a")
    again = tokens.issue(store, tokens.BACKEND, "a")
    assert tokens.owner(store, again) == ("backend", "a")
    digest = next(row["sha256"] for row in store.tokens())
    for wrong in (None, "", made["a"], made["b"][:-1], made["b"] + " ", digest, "0" * 64, "%", "\ud800", "x" * 10_000):
        assert tokens.owner(store, wrong) is None


def test_what_a_look_up_costs_does_not_grow_with_their_number(store):
    """Counted in steps of the ledger's own machine, so that no clock is needed."""
    steps = []
    for number in (3, 300):
        for n in range(number):
            tokens.issue(store, tokens.BACKEND, f"b{n}")
        for asked in (tokens.issue(store, tokens.BACKEND, "b1"), "wrong", None):
            count = [0]
            store._db().set_progress_handler(lambda count=count: count.__setitem__(0, count[0] + 1), 1)
            tokens.owner(store, asked)
            store._db().set_progress_handler(None, 1)
            steps.append(count[0])
    assert 0 < max(steps) < 40 and max(steps) - min(steps) < 10


def test_use_is_written_down_at_once_for_a_newcomer_and_together_for_many(store, tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(intake.time, "monotonic", lambda: now[0])
    written = []
    monkeypatch.setattr(store, "saw_tokens", lambda kind, moments, real=store.saw_tokens: (
        written.append(sorted(moments)), real(kind, moments)))
    made = {name: tokens.issue(store, tokens.BACKEND, name) for name in ("a", "b", "c")}
    door = intake.Intake(store, Places(tmp_path))
    door.authenticate(made["a"])
    assert seen(store)["a"] and written == [["a"]]
    for name in ("b", "c"):
        door.authenticate(made[name])
    assert written == [["a"]]
    now[0] += 1.5
    door.authenticate(made["b"])
    assert written == [["a"], ["b", "c"]] and all(seen(store).values())
    for _ in range(10):
        now[0] += 2
        for token in made.values():
            door.authenticate(token)
    assert len(written) == 2
    now[0] += 11
    door.authenticate(made["a"])
    assert written[2] == ["a", "b", "c"]
