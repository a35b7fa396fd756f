"""One squeue for all runs of a login node, whoever asks it."""

from __future__ import annotations

import pytest
from potato_training.worker import protocol, slurm
from potato_training.worker.jobdir import JobDir, Lock
from potato_training.worker.slurm import Done
from potato_training.worker.slurm_queue import Queue
from potato_training.worker.slurm_record import Record
from potato_training.worker.slurm_share import Share

INTERVAL = 30.0


class World:
    """A clock, a Slurm that answers at once, and agents that look ten times a second."""

    def __init__(self, root):
        self.root, self.now, self.calls, self.agents = root, 1000.0, [], {}
        self.alive, self.names = {}, {}

    def clock(self):
        return self.now

    def add(self, name, job_id):
        jobdir = JobDir(str(self.root / "jobs" / name))
        jobdir.create()
        jobdir.write(protocol.LEASE_FILE, "1\n")
        lock = Lock(jobdir.path(protocol.AGENT_LOCK))
        assert lock.take()
        record = Record(jobdir, f"potato-{name}")
        record.job_id = job_id
        record.write()
        clerk = Clerk(self)
        self.alive[job_id], self.names[job_id] = "PENDING", record.name
        queue = Queue(record, clerk, Share(jobdir, record, self.clock), INTERVAL, 60, self.clock)
        self.agents[name] = (queue, clerk, lock)
        return queue

    def pass_time(self, seconds):
        until = self.now + seconds
        while self.now < until:
            self.now += 0.1
            for queue, clerk, _ in list(self.agents.values()):
                if clerk.kind:
                    kind, clerk.kind = clerk.kind, ""
                    queue.take(kind, clerk.done, self.now)
                elif (received := queue.received()) is not None:
                    queue.take("squeue", *received, own=False)
                else:
                    queue.step()


class Clerk:
    def __init__(self, world):
        self.world, self.kind = world, ""

    def ask(self, kind, argv, seconds):
        ids = argv[argv.index("-j") + 1].split(",") if kind == "squeue" else [argv[-1]]
        known = [job_id for job_id in ids if job_id in self.world.alive]
        self.kind = kind
        if kind == "squeue":
            self.world.calls.append(ids)
            names = self.world.names
            out = "".join(f"{job_id}|{self.world.alive[job_id]}|Priority||{names[job_id]}\n" for job_id in known)
        else:
            out = "".join(f"JobId={job_id} JobName={self.world.names[job_id]} JobState={self.world.alive[job_id]} "
                          "NodeList=(null)\n" for job_id in known)
        self.done = Done(0, out)
        if len(ids) == 1 and not known:
            self.done = Done(1, "", "slurm_load_jobs error: Invalid job id specified\n")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_one_question_an_interval_however_many_runs(world):
    for n in range(8):
        world.add(f"run-{n}", str(4242 + n))
    world.pass_time(5)
    world.calls.clear()
    world.pass_time(10 * INTERVAL)
    assert len(world.calls) in (10, 11)
    assert all(len(ids) == 8 for ids in world.calls)
    assert all(queue.seen.state == "PENDING" for queue, _, _ in world.agents.values())


def test_everyone_hears_of_a_change_and_of_the_end(world):
    for n in range(3):
        world.add(f"run-{n}", str(4242 + n))
    world.pass_time(INTERVAL)
    world.alive["4244"] = "RUNNING"
    del world.alive["4243"]
    world.pass_time(2 * INTERVAL)
    assert world.agents["run-2"][0].seen.state == "RUNNING"
    assert world.agents["run-1"][0].left_at is not None
    assert world.agents["run-0"][0].left_at is None


def test_an_id_that_was_given_to_another_job_is_a_job_that_is_gone(world):
    for n in range(3):
        world.add(f"run-{n}", str(4242 + n))
    world.pass_time(INTERVAL)
    world.names["4242"] = world.names["4243"] = "mywork"
    world.pass_time(2 * INTERVAL)
    assert [queue.left_at is None for queue, _, _ in world.agents.values()] == [False, False, True]


def test_when_the_one_that_asks_is_gone_another_does(world):
    for n in range(3):
        world.add(f"run-{n}", str(4242 + n))
    world.pass_time(2 * INTERVAL)
    del world.agents["run-0"]
    world.calls.clear()
    world.pass_time(4 * INTERVAL)
    assert 3 <= len(world.calls) <= 5


def test_another_cluster_and_another_login_node_are_not_asked_for(world):
    world.add("run-0", "1")
    other = world.add("run-1", "2")
    other._record.cluster = "alpha"
    other._record.write()
    world.add("run-2", "3")
    JobDir(str(world.root / "jobs" / "run-2")).write(protocol.AGENT_LOCK, '{"host": "login2", "pid": 1}\n')
    world.pass_time(3 * INTERVAL)
    assert {tuple(ids) for ids in world.calls} == {("1",), ("2",), ("3", "1")}


@pytest.mark.parametrize("text", ["", "null", "[]", '{"at": "x"}', '{"at": 1e300, "code": 0, "host": "h", "job": "1"}'])
def test_whatever_lies_in_the_directory_is_no_answer(world, text):
    queue = world.add("run-0", "1")
    JobDir(str(world.root / "jobs" / "run-0")).write("squeue.json", text)
    world.pass_time(INTERVAL)
    assert queue.seen.state == "PENDING"


def test_what_an_answer_about_several_says_of_one():
    asked = ["1", "2", "3"]
    done = Done(0, "1|RUNNING|None|n1|a\n2|PENDING|Priority||b\n")
    assert slurm.read_poll(slurm.only(done, "1", asked), "1", "a").state == "RUNNING"
    assert slurm.read_poll(slurm.only(done, "3", asked), "3", "c").gone
    odd = Done(0, "hello\n1|RUNNING|None|n1|a\n")
    assert not slurm.read_poll(slurm.only(odd, "3", asked), "3", "c").known
    complaint = Done(1, "", "slurm_load_jobs error: Invalid job id specified\n")
    assert not slurm.read_poll(slurm.only(complaint, "3", asked), "3", "c").known
    assert slurm.read_poll(slurm.only(complaint, "3", ["3"]), "3", "c").gone
