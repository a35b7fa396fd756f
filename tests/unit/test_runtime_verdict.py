"""The verdict: its table, and what no combination of facts may ever give."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.runtime import verdict
from potato_training.runtime.verdict import MISSING, SAVED, TOO_LARGE, Facts, judge

GOOD = Facts(reported=True, exit_code=0, result="succeeded", predictions=SAVED, agent_reason="finished")

ANY = st.builds(
    Facts,
    wish=st.sampled_from([None, "cancel"]),
    grace_over=st.booleans(),
    reported=st.booleans(),
    agent_reason=st.sampled_from(["", "finished", "max-wall", "gave-up", "worker-lost", "cancelled", "x"]),
    exit_code=st.sampled_from([None, 0, 1, 2, 3, 4, 5, 137, 139, 143, 77]),
    result=st.sampled_from([None, "succeeded", "cancelled", "failed"]),
    error=st.sampled_from([None, {"code": "x", "message": "it broke"}, {"code": "cancelled", "message": "stop"}, {}]),
    predictions=st.sampled_from([SAVED, MISSING, TOO_LARGE]),
    silent_s=st.sampled_from([0, 119, 121]),
    wall_over=st.sampled_from([None, 3600.0]),
    unreachable=st.sampled_from(["", "The agent on this machine is gone"]),
    lost=st.booleans(),
)


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({}, "succeeded", ""),
        ({"exit_code": None}, "failed", "left no exit code"),
        ({"result": None}, "failed", "reported no result"),
        ({"predictions": MISSING}, "failed", "predictions did not arrive"),
        ({"predictions": TOO_LARGE}, "failed", "larger than 512 MB (model_training.max_predictions_mb)"),
        ({"exit_code": 137, "result": None}, "failed", "ran out of memory"),
        ({"exit_code": 5, "result": None}, "failed", "ran out of memory"),
        ({"exit_code": 139, "result": None}, "failed", "killed by signal 11"),
        ({"exit_code": 4, "result": "cancelled"}, "failed", "was stopped from outside"),
        ({"exit_code": 4, "agent_reason": "gave-up"}, "failed", "had no answer from this server"),
        ({"exit_code": 1, "result": None, "error": {"message": "loss became NaN"}}, "failed", "loss became NaN"),
        ({"exit_code": 77, "result": None}, "failed", "exit code 77"),
        ({"wall_over": 3600.0}, "failed", "The run was stopped after 3600 seconds (model_training.max_wall_seconds)"),
        ({"lost": True}, "failed", "The server stopped during this run"),
        ({"reported": False, "silent_s": 121}, "failed", "No word from the agent on this machine for 120 seconds"),
        ({"reported": False, "unreachable": "The agent is gone"}, "failed", "The agent is gone"),
        ({"wish": "cancel"}, "cancelled", "cancelled"),
        ({"wish": "cancel", "reported": False, "grace_over": True}, "cancelled", "cancelled"),
    ],
)
def test_the_table(changes, status, reason):
    found = judge(replace(GOOD, **changes))
    assert found is not None
    assert found.status == status
    assert reason in found.reason


def test_a_run_that_is_going_on_has_no_verdict():
    assert judge(Facts()) is None
    assert judge(Facts(exit_code=0, result="succeeded", predictions=SAVED)) is None
    assert judge(Facts(wish="cancel")) is None


@given(ANY)
def test_success_needs_everything(facts):
    found = judge(facts)
    if found is not None and found.status == "succeeded":
        assert facts.reported
        assert facts.exit_code == 0
        assert facts.result == "succeeded"
        assert facts.predictions == SAVED
        assert facts.wish is None
        assert facts.wall_over is None
        assert not facts.lost


@given(ANY)
def test_what_was_reported_is_always_decided_and_always_explained(facts):
    found = judge(replace(facts, reported=True))
    assert found is not None
    assert found.status == "succeeded" or found.reason


@given(ANY)
def test_taking_a_fact_away_never_makes_a_success(facts):
    unknown = Facts()
    for name in ("exit_code", "result", "predictions", "reported"):
        poorer = judge(replace(facts, **{name: getattr(unknown, name)}))
        assert poorer is None or poorer.status != "succeeded"


@given(ANY)
def test_cancelled_only_when_somebody_asked(facts):
    found = judge(facts)
    if found is not None and found.status == "cancelled":
        assert facts.wish == "cancel"


def test_the_page_for_people_lists_the_rules_in_their_order():
    page = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text("utf-8")
    told = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert told == [rule.__name__.lstrip("_") for rule in verdict.RULES]
