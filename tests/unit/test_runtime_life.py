"""A run only moves forward."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from potato_training.runtime import life
from potato_training.worker.protocol import CANCELLING, ENDS, FAILED, RUNNING, STATES, SUCCEEDED, WAITING

POSITIONS = st.tuples(st.integers(1, 4), st.sampled_from(STATES))


def walk(start, news):
    position = start
    for target in news:
        if life.may_move(position, target):
            position = (max(position[0], target[0]), target[1])
    return position


def test_an_end_is_final_for_every_attempt():
    for end in ENDS:
        assert not any(life.may_move((1, end), (a, s)) for a in (1, 2) for s in STATES)


def test_a_requeued_job_goes_back_to_waiting_as_another_attempt():
    assert not life.may_move((1, RUNNING), (1, WAITING))
    assert life.may_move((1, RUNNING), (2, WAITING))


def test_from_cancelling_only_an_end_follows():
    assert not life.may_move((1, CANCELLING), (2, RUNNING))
    assert life.may_move((1, CANCELLING), (1, FAILED))


@given(POSITIONS, st.lists(POSITIONS, max_size=8))
def test_the_same_news_twice_changes_nothing(start, news):
    assert walk(start, news) == walk(start, [n for item in news for n in (item, item)])


@given(st.permutations([(1, s) for s in STATES if s not in ENDS and s != CANCELLING]))
def test_states_of_one_attempt_end_in_the_furthest_whatever_their_order(news):
    assert walk((1, "queued"), news) == (1, "fetching")


def test_exactly_one_end_wins():
    for first, second in itertools.permutations(ENDS, 2):
        assert walk((1, RUNNING), [(1, first), (1, second)]) == (1, first)


def test_waiting_in_a_scheduler_holds_nobody_back():
    assert WAITING not in life.EXECUTING
    assert RUNNING in life.EXECUTING
    assert SUCCEEDED not in life.EXECUTING
