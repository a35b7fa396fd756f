"""A compute node's clock: told when it is far off, whatever the storage between does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.worker.slurm_clock import NodeClock

AT = 1_700_000_000.0


def told(skew_s, ages, every_s=10.0):
    """What is said of a node whose clock is ``skew_s`` ahead, and whose events show so late."""
    now = [0.0]
    clock = NodeClock(lambda: now[0], lambda: AT + now[0])
    clock.heard({"host": "n1", "t": None})
    lines = []
    for age in ages:
        lines.append(clock.heard({"t": AT + now[0] - age + skew_s}))
        now[0] += every_s
    return [line for line in lines if line]


def test_ahead_is_told_at_once():
    (line,) = told(300, [0, 0, 0])
    assert line.startswith("note: the clock of n1 is 300 s ahead of that of ")


@pytest.mark.parametrize("skew_s", [-90, -250])
def test_behind_is_told_of_the_freshest(skew_s):
    (line,) = told(skew_s, [30, 5, 0, 7, 20, 3, 0, 1])
    assert f"n1 is {-skew_s} s behind" in line
    assert told(skew_s, [0, 0, 0]) == [], "not before it is known whether they only came late"


@given(st.floats(-58, 58), st.lists(st.floats(0, 1), min_size=1, max_size=30), st.lists(st.floats(0, 1e6), max_size=20))
def test_a_clock_that_is_nearly_right_is_nothing_to_tell(skew_s, live, backlog):
    """Old events from before the agent come all at once, and new ones follow."""
    now = [0.0]
    clock = NodeClock(lambda: now[0], lambda: AT + now[0])
    for age in backlog:
        assert clock.heard({"t": AT - age - 59 + min(skew_s, 0)}) == ""
    for late in live:
        now[0] += 10
        assert clock.heard({"t": AT + now[0] - late + skew_s}) == ""


@pytest.mark.parametrize("t", [None, "x", True, {}])
def test_a_time_that_is_none(t):
    assert NodeClock().heard({"t": t}) == ""
