"""Whatever Slurm's commands print: a reading, never an exception, and never an end that was not said."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from potato_training.worker import slurm, slurm_why
from potato_training.worker.slurm import Done, Doubtful, Look, Refused, Submitted

NAME = "potato-r"
CODES = st.none() | st.integers(-64, 300)
WORDS = st.sampled_from([
    "4242", "4242;alpha", "|", "RUNNING", "PENDING", "\n", " ", "CLUSTER: alpha", "potato|", "JobId=4242", "JobState=",
    "COMPLETED", "NodeList=", "Invalid job id specified", "error", "timed out", "Submitted batch job",
    "\r", "\x00", "٤", "4242|RUNNING|None|n1|", "JobId=4242 JobState=RUNNING JobName=", NAME,
])
TEXT = st.text(max_size=80) | st.lists(WORDS, max_size=12).map("".join)
DONE = st.builds(Done, CODES, TEXT, TEXT)


@given(DONE)
@example(Done(0, "٤٢\n"))
@example(Done(0, "potato|²|RUNNING|\n"))
def test_submit_and_find(done):
    answer = slurm.read_submit(done)
    assert isinstance(answer, (Submitted, Refused, Doubtful))
    if isinstance(answer, Submitted):
        assert done.code == 0
        assert answer.job_id.isascii() and answer.job_id.isdigit()
        assert not set(answer.cluster) & set("; \n'\"$")
    if isinstance(answer, Refused):
        assert done.code not in (None, 0)
        assert answer.words
    found = slurm.read_find(done)
    assert found is None or (done.code == 0 and all(i.isascii() and i.isdigit() for i in found))


@given(DONE)
def test_poll_and_show(done):
    for look in (slurm.read_poll(done, "4242", NAME), slurm.read_show(done, "4242", NAME)):
        assert isinstance(look, Look)
        assert look.known != bool(look.why)
        if look.gone:
            empty = all(line.startswith("CLUSTER:") or not line.strip() for line in done.out.splitlines())
            another = "4242" in done.out  # of that id, and of another name
            assert "Invalid job id" in done.err if done.code else empty or another
        if look.state:
            assert done.code == 0
            assert NAME in done.out
            assert "4242" in done.out
            assert look.state in done.out
        str(look)
        assert slurm_why.from_look(look) in (None, *slurm_why.HINTS)


@given(TEXT)
def test_the_rest(text):
    assert slurm_why.from_output(text, "4242") in (None, *slurm_why.HINTS)
    assert len(slurm.flags(text)) <= 2000


@given(st.text("RUNIG", min_size=1, max_size=9), st.integers(0, 60))
def test_half_an_answer_is_none(node, cut):
    """Any beginning of a good answer is the answer, or "don't know"; only nothing at all is an end."""
    whole = f"4242|RUNNING|None|{node}|{NAME}\n"
    look = slurm.read_poll(Done(0, whole[:cut]), "4242", NAME)
    assert look.state == ("RUNNING" if cut >= len(whole) else "")
    assert look.gone == (cut == 0)
