"""What is said to Slurm, and what its answers mean. Pure: each question is an argv, each answer a reading.

An answer is a state, *gone*, or *don't know*; only what Slurm clearly says is one of the first two. The
oddities that are named here were seen on Slurm 22.05.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

JOB_SCRIPT = "job.sh"
OUTPUT = "slurm.out"

_OURS_TO_CLEAR = ("SBATCH_", "SQUEUE_", "SCANCEL_", "SCONTROL_", "SLURM_")
_ID = re.compile(r"(?:Submitted batch job )?([1-9][0-9]{0,11})(?:;([A-Za-z0-9_.-]{1,100})| on cluster (\S{1,100}))?")
_STATE = re.compile(r"[A-Z][A-Z_]{1,40}")
_NO_SUCH_JOB = "Invalid job id specified"
_ERROR = re.compile(r"^(?:squeue|slurm)\w*:? .*error|^slurm_\w+ error", re.MULTILINE | re.IGNORECASE)
_LONGEST = 2000

#: Not started yet, or started once and to be started again.
WAITING = frozenset((
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD",
))
#: A name that is in neither of the two sets is a job that is alive.
FINAL = frozenset((
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "REVOKED",
    "PREEMPTED", "LAUNCH_FAILED",
))
#: Reasons of a pending job that no waiting clears.
_NEVER = re.compile(
    r"PartitionTimeLimit|PartitionNodeLimit|BadConstraints|DependencyNeverSatisfied|InvalidAccount|InvalidQOS"
    r"|AccountNotAllowed|QOSNotAllowed|Assoc(?:Grp|Max)\w*Per(?:Job|Node)\w*|QOS(?:Grp|Max|Min)\w*Per(?:Job|Node)\w*"
    r"|(?:Assoc|QOS)MaxWallDurationPerJob\w*|QOSMinGRES|QOSTimeLimit|AssociationTimeLimit|AssociationJobLimit"
)
#: Reasons of one that waits for a release: somebody holds it, or Slurm does after a launch that failed.
_HELD = re.compile(r"JobHeld\w*|.*\bheld\b.*", re.IGNORECASE)
#: What sbatch says when the controller may have taken the job all the same, or could not be asked.
_WEATHER = re.compile(
    r"timed? ?out|contact slurm controller|connect|communicat|transmitted|unexpected message|temporar|standby"
    r"|try again|no reply|\bsocket\b|in progress|interrupted|protocol auth|munge|broken pipe", re.IGNORECASE)


class Done(NamedTuple):
    """How a call ended. ``code`` is None when it did not end in its time, and ``missing`` when there is no
    such program."""

    code: Optional[int]
    out: str = ""
    err: str = ""
    missing: bool = False


class Submitted(NamedTuple):
    job_id: str
    cluster: str = ""


class Refused(NamedTuple):
    words: str


class Doubtful(NamedTuple):
    """There may be a job now, or not."""

    why: str


class Look(NamedTuple):
    """What is known of a job. ``state`` is Slurm's word; empty with ``gone`` when Slurm knows the job no
    more, empty without when nobody could say, and then ``why`` has the words."""

    state: str = ""
    reason: str = ""
    node: str = ""
    gone: bool = False
    why: str = ""
    restarts: Optional[int] = None
    exit: str = ""

    @property
    def known(self) -> bool:
        return self.gone or bool(self.state)

    @property
    def over(self) -> bool:
        return self.gone or self.state in FINAL

    @property
    def waiting(self) -> bool:
        return self.state in WAITING

    def __str__(self) -> str:
        """``PENDING (Priority)``, ``RUNNING on node07``."""
        if self.waiting:
            return self.state + (" (%s)" % self.reason if self.reason not in ("", "None") else "")
        return self.state + (" on %s" % self.node if self.node else "")


def environment(inherited: Mapping[str, str]) -> Dict[str, str]:
    """For every question: the caller's variables would filter jobs away and rewrite what is submitted, all
    with exit code 0."""
    kept = {name: value for name, value in inherited.items()
            if name == "SLURM_CONF" or not name.startswith(_OURS_TO_CLEAR)}
    kept["LC_ALL"] = "C"
    return kept


# --- questions ----------------------------------------------------------------------------------------


def submit(name: str) -> List[str]:
    """To be called in the job directory."""
    return ["sbatch", "--parsable", "--job-name=" + name, JOB_SCRIPT]


def find(name: str, user: str, cluster: str = "") -> List[str]:
    """Jobs of this name, those that have just ended included."""
    return ["squeue", "-h", *_on(cluster), "-t", "all", "-n", name, "-u", user, "-o", "potato|%i|%T|"]


def poll(job_id: str, cluster: str = "") -> List[str]:
    """The name comes last: another job's may hold anything."""
    return ["squeue", "-h", *_on(cluster), "-j", job_id, "-o", "%i|%T|%r|%N|%j"]


def show(job_id: str, cluster: str = "") -> List[str]:
    return ["scontrol", *_on(cluster), "-o", "show", "job", job_id]


def cancel(step: str, job_id: str, name: str, cluster: str = "") -> List[str]:
    """One rung: ``pending`` ends a job that has not started, ``term`` and ``kill`` signal all of a running one
    (a pending one makes scancel try for a minute and a half), ``plain`` leaves it to Slurm's KillWait. Never another
    job: a controller that was set back gives ids away again."""
    rung = {
        "pending": ["--state=PENDING"], "term": ["--full", "--signal=TERM"], "kill": ["--full", "--signal=KILL"],
        "plain": [],
    }[step]
    return ["scancel", *_on(cluster), "--name=" + name, *rung, job_id]


def _on(cluster: str) -> List[str]:
    return ["-M", cluster] if cluster else []


# --- readings -----------------------------------------------------------------------------------------


def read_submit(done: Done) -> Union[Submitted, Refused, Doubtful]:
    """Wrappers print before and behind the id, on both streams."""
    if done.code is None:
        return Doubtful("sbatch did not answer in time")
    found = job_named(done.out)
    if done.code == 0:
        return found or Doubtful("sbatch named no job")
    words = said(done)
    killed = done.code < 0 or 128 < done.code < 192  # the second by way of a wrapper; sbatch itself has 1 and 255
    silent = not done.err.strip() and not done.out.strip()
    if killed or silent or found or is_weather(words):
        return Doubtful(words)
    return Refused(words)


def is_weather(words: str) -> bool:
    """Whether sbatch could not ask, rather than was refused."""
    return bool(_WEATHER.search(words))


def job_named(out: str) -> Optional[Submitted]:
    """The last line that is an id, or an id and its cluster."""
    for line in reversed(out.splitlines()):
        match = _ID.fullmatch(line.strip())
        if match:
            return Submitted(match[1], match[2] or match[3] or "")
    return None


def read_find(done: Done) -> Optional[List[str]]:
    """The ids, the oldest first; None for "don't know"."""
    if done.code != 0 or _complains(done) or not _whole(done.out):
        return None
    found = []
    for line in done.out.splitlines():
        fields = line.strip().split("|")
        if fields[0] == "potato":
            if len(fields) != 4 or not fields[1].isdigit() or not fields[1].isascii():
                return None
            found.append(fields[1])
    return sorted(set(found), key=int)


def only(done: Done, job_id: str, asked: Sequence[str]) -> Done:
    """What an answer about several jobs says of one of them. For several squeue is silent about those that it does
    not know; should it complain, nothing is known of any."""
    if len(asked) > 1 and no_such_job(done):
        return done._replace(err="squeue: one of several jobs is unknown\n")
    others = {other for other in asked if other != job_id}
    lines = [line for line in done.out.splitlines(True) if line.partition("|")[0].strip() not in others]
    return done._replace(out="".join(lines))


def read_poll(done: Done, job_id: str, name: str) -> Look:
    """A job of this id and another name is not the one: that one is gone, and its id given away again."""
    if done.code is None:
        return Look(why="squeue is missing" if done.missing else "squeue did not answer in time")
    if done.code != 0:
        return _no_answer(done)
    lines = [line for line in done.out.splitlines(True) if line.strip() and not line.startswith("CLUSTER:")]
    for line in reversed(lines):
        fields = line.strip().split("|", 4)
        if len(fields) == 5 and fields[0] == job_id and line.endswith("\n"):
            state = _STATE.match(fields[1])
            if state and fields[4].strip() != name:
                return Look(gone=True)
            if state:
                return Look(state[0], _short(fields[2]), _short(fields[3]))
    if lines or _complains(done):
        return Look(why=_short("squeue's answer cannot be read: " + (lines[0].strip() if lines else said(done))))
    return Look(gone=True)


def read_show(done: Done, job_id: str, name: str) -> Look:
    """As ``read_poll``."""
    if done.code is None:
        return Look(why="scontrol is missing" if done.missing else "scontrol did not answer in time")
    if done.code != 0:
        return _no_answer(done)
    # a name or a comment may hold what it likes, but it comes after one of ours, or after the state
    for line in done.out.splitlines(True):
        words: Dict[str, str] = {}
        for word in line.split():
            key, equals, value = word.partition("=")
            if equals:
                words.setdefault(key, value)
        state = _STATE.match(words.get("JobState", ""))
        if words.get("JobId") == job_id and state and words.get("JobName") and line.endswith("\n"):
            if words["JobName"] != name:
                return Look(gone=True)
            node = words.get("NodeList", "")
            restarts = words.get("Restarts", "")
            return Look(
                state[0], _short(words.get("Reason", "")), "" if node == "(null)" else _short(node),
                restarts=int(restarts) if re.fullmatch(r"[0-9]{1,6}", restarts) else None,
                exit=_short(words.get("ExitCode", "")),
            )
    return Look(why="scontrol's answer cannot be read")


def never_starts(look: Look) -> bool:
    return look.state == "PENDING" and bool(_NEVER.fullmatch(look.reason))


def held(look: Look) -> bool:
    return look.waiting and bool(_HELD.fullmatch(look.reason))


def flags(script: str) -> str:
    """The #SBATCH flags that somebody chose, for the run log."""
    ours = ("--job-name=", "--output=", "--no-requeue", "--open-mode=", "--export=ALL")
    found = []
    for line in script.splitlines()[1:]:
        if line.startswith("#SBATCH "):
            flag = line[len("#SBATCH "):].strip()
            if not flag.startswith(ours):
                found.append(flag)
        elif line.strip() and not line.startswith("#"):
            break
    return _short(" ".join(found))


def said(done: Done) -> str:
    """What a failed call says, as one line in its own words."""
    lines = [line.strip() for line in (done.err.strip() or done.out.strip()).splitlines()]
    words = "; ".join(re.sub(r"^(sbatch|squeue|scancel|scontrol): (error: )?", "", line) for line in lines if line)
    return _short(words) or "exit code %s" % done.code


def _no_answer(done: Done) -> Look:
    if no_such_job(done):
        return Look(gone=True)
    return Look(why=said(done))


def no_such_job(done: Done) -> bool:
    return done.code == 1 and _NO_SUCH_JOB in done.err


def _complains(done: Done) -> bool:
    """Exit code 0 and words of failure: no answer to rely on."""
    return bool(_ERROR.search(done.err))


def _whole(out: str) -> bool:
    return not out or out.endswith("\n")


def _short(text: str) -> str:
    return text.strip()[:_LONGEST]
