"""An agent's own words: on its stderr as long as somebody listens, then in its job directory, within bounds."""

from __future__ import annotations

import subprocess
import sys

from potato_training.runtime.ssh import agent_log

TALK = """
import sys
from potato_training.worker import agent_voice
from potato_training.worker.agent_ears import Ears
from potato_training.worker.jobdir import JobDir
ears = Ears(0)
ears.at_the_end_of_stdin(lambda: agent_voice.keep(JobDir(sys.argv[1])))
agent_voice.say("listened to")
ears.rest(60)
assert ears.stdin_ended
for number in range(int(sys.argv[2])):
    agent_voice.say("line %d, and so on and so forth and again" % number)
"""


def talk(folder, lines, stderr):
    return subprocess.run([sys.executable, "-c", TALK, str(folder), str(lines)], input=b"", stderr=stderr, check=True)


def test_words_after_the_login_go_to_the_job_directory(tmp_path):
    done = talk(tmp_path, 3, subprocess.PIPE)
    assert done.stderr == b"agent: listened to\n"
    kept = (tmp_path / "agent.err").read_text().splitlines()
    assert kept == [f"agent: line {n}, and so on and so forth and again" for n in range(3)]


def test_the_last_words_stay_within_bounds(tmp_path):
    talk(tmp_path, 20_000, subprocess.PIPE)
    kept = (tmp_path / "agent.err").read_text()
    assert 100_000 < len(kept) < 300_000
    lines = kept.splitlines()
    assert lines[0] == "agent: [older lines are dropped]"
    assert lines[-1].startswith("agent: line 19999,")
    assert all(line.endswith("again") for line in lines[1:])


def test_a_log_file_has_no_end(tmp_path):
    with (tmp_path / "agent.log").open("wb") as log:
        talk(tmp_path, 3, log)
    assert len((tmp_path / "agent.log").read_text().splitlines()) == 4
    assert not (tmp_path / "agent.err").exists()


def test_agent_log_is_bounded_and_has_the_end(tmp_path, wait_until):
    path = tmp_path / "agent.log"
    with agent_log.into(path) as errors:
        subprocess.run([sys.executable, "-c", "import sys\nfor n in range(400_000): print('line', n, file=sys.stderr)"],
                       stderr=errors, check=True)
    wait_until(lambda: path.exists() and path.read_text().endswith("line 399999\n"), "the last line")
    older = tmp_path / "agent.log.1"
    assert path.stat().st_size + older.stat().st_size < 2 * agent_log.MOST + (1 << 17)
    agent_log.append(path, ["one more"])
    assert path.read_text().endswith("line 399999\none more\n")
    agent_log.append(tmp_path / "gone" / "agent.log", ["nobody keeps it"])
