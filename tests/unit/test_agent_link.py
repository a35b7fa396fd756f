"""The link by a clock that moves only when told: pauses, giving up, and reading attach.json again."""

from __future__ import annotations

import json
import shutil

import pytest
from potato_training.worker.agent_link import Down, Gone, Link, Rejected, Superseded, read_attach, write_attach
from potato_training.worker.http_client import Answer, Unreachable
from potato_training.worker.jobdir import JobDir


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def jobdir(tmp_path):
    jobdir = JobDir(tmp_path / "job")
    jobdir.create()
    write_attach(jobdir, 1, "/tmp/p-1/s", "one")
    return jobdir


@pytest.fixture
def link(jobdir, clock):
    return Link("/tmp/p-1/s", "one", jobdir=jobdir, generation=1, give_up_s=60, clock=clock)


def says(status, body=None):
    return lambda client: Answer(status, {}, b"" if body is None else json.dumps(body).encode())


def nothing(client):
    raise Unreachable("nobody there")


def fail_until_given_up(link, clock):
    tries = 0
    while not link.gave_up:
        assert link.ready()
        with pytest.raises(Down):
            link.call(nothing)
        tries += 1
        while not link.ready():
            clock.now += 0.05
    return tries


def test_pauses_grow_and_giving_up_comes_when_the_time_is_over(link, clock):
    began = clock.now
    tries = fail_until_given_up(link, clock)
    assert 60 <= clock.now - began < 60 + 40
    assert 10 < tries < 40
    assert link.last_error == "nobody there"


def test_any_answer_of_the_server_starts_the_clock_anew(link, clock):
    for _ in range(50):
        clock.now += 50
        with pytest.raises(Down):
            link.call(nothing)
        assert link.call(says(409, {"error": "x"})).status == 409
    assert not link.gave_up and link.failures == 0


@pytest.mark.parametrize("request_", [
    says(502, {"error": "bad gateway"}), says(503), says(429, {"error": "slow down"}), says(403, {"message": "log in"}),
    says(302, {"to": "elsewhere"}), says(301), says(504), says(500, {"error": "internal error"}),
    lambda client: Answer(200, {}, b"<html>log in first</html>"), says(404), says(200),
    lambda client: Answer(410, {}, b"gone"),
])
def test_what_does_not_come_from_the_server_is_no_answer(link, clock, request_):
    clock.now += 61
    with pytest.raises(Down):
        link.call(request_)
    assert link.gave_up


@pytest.mark.parametrize("status", [404, 410])
def test_the_servers_own_404_and_410_end_the_job(link, status):
    with pytest.raises(Gone, match="over"):
        link.call(says(status, {"error": "over"}))


def test_204_is_an_answer(link):
    assert link.call(says(204)).status == 204


def test_the_process_that_was_stopped_asks_once_more_before_it_gives_up(link, clock):
    def stopped_in_the_middle(client):
        clock.now += 3600
        raise Unreachable("no answer in time")

    with pytest.raises(Down):
        link.call(stopped_in_the_middle)
    assert not link.gave_up
    assert link.ready()
    with pytest.raises(Down):
        link.call(nothing)
    assert link.gave_up


def test_a_new_door_is_tried_at_once(link, jobdir, clock):
    with pytest.raises(Down):
        link.call(nothing)
    write_attach(jobdir, 1, "/tmp/p-2/s", "two")
    assert link.ready()  # without waiting for the pause
    seen = []
    with pytest.raises(Down):
        link.call(nothing)
    link.call(lambda client: seen.append(client) or Answer(204, {}, b""))
    assert (link.address, link.token) == ("/tmp/p-2/s", "two")
    assert seen[0]._headers()["Authorization"] == "Bearer two"


def test_a_later_generation_ends_this_agent(link, jobdir):
    write_attach(jobdir, 2, "/tmp/p-2/s", "two")
    with pytest.raises(Superseded):
        link.call(nothing)


def test_a_job_that_was_released_is_over(link, jobdir):
    shutil.rmtree(jobdir.root)
    with pytest.raises(Gone, match="job directory"):
        link.call(nothing)


def test_a_kept_directory_without_its_door_is_over(link, jobdir):
    jobdir.remove("attach.json")
    with pytest.raises(Gone, match="job directory"):
        link.call(nothing)


def test_storage_that_is_away_is_no_release(link, jobdir, tmp_path):
    tmp_path.rename(tmp_path.parent / "away")
    with pytest.raises(Down):
        link.call(nothing)


@pytest.mark.parametrize("attach", [
    "", "{", "[]", "{}", '{"generation":"7"}', '{"generation":0,"socket":"/x","token":"t"}',
    '{"generation":1}', '{"generation":1,"socket":5,"token":"t"}',
])
def test_an_attach_file_that_says_nothing_new_changes_nothing(link, jobdir, attach):
    jobdir.write("attach.json", attach)
    with pytest.raises(Down):
        link.call(nothing)
    assert (link.address, link.token) == ("/tmp/p-1/s", "one")


def test_401_is_final_only_where_no_newer_token_can_come(link, clock):
    with pytest.raises(Down):
        link.call(says(401, {"error": "unauthorized"}))
    with pytest.raises(Rejected):
        Link("http://server", "t", clock=clock).call(says(401, {"error": "unauthorized"}))


def test_a_request_takes_no_longer_than_until_the_next_duty(link):
    assert link.timeout_s == 15
    link.hurry_s = 3.0
    assert link.timeout_s == 3
    link.hurry_s = 0.0
    assert link.timeout_s == 1
    link.hurry_s, link.give_up_s = None, 8
    assert link.timeout_s == 2


def test_the_token_goes_when_nobody_is_attached_any_more(jobdir):
    write_attach(jobdir, 3)
    assert read_attach(jobdir) == (3, "", "")
    assert "token" not in (jobdir.read("attach.json") or "")


def test_a_proxys_413_is_final_for_that_body_and_says_nothing_about_the_link(link, clock):
    with pytest.raises(Down):
        link.call(nothing)
    assert link.call(lambda client: Answer(413, {}, b"<html>too large</html>")).status == 413
    assert link.failures == 1
