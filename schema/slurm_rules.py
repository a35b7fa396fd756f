"""What a JSON Schema cannot say about a Slurm job's keys: its time, the flags of sbatch, what it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import slurmtime
from .findings import NOTE, WARNING
from .near import nearest
from .sbatch_flags import HELD, OWNED
from .words import quoted

if TYPE_CHECKING:
    from .backend_rules import Entry

_LONG_SECONDS = 6 * 3600
#: A number of MB this small was meant as gigabytes: Python with torch alone takes more.
_LITTLE_MB = 512
_MAIL_TYPES = ("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT",
               "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS")


def check_time(entry: Entry) -> None:
    text = entry.given("time")
    if text is None:
        return
    length = slurmtime.seconds(text)
    if length is None:
        entry.say("time", f"{quoted(text)} is not a Slurm time; use {slurmtime.FORMS}")
    elif length > _LONG_SECONDS:
        entry.say("time", f"{entry.path}.time is {text}. A job that holds a GPU for more than 6 hours is long on a "
                  "shared cluster; check its policy", "", WARNING)
    elif text.count(":") == 1 and "-" not in text:
        entry.say("time", f"{text} is {text.split(':')[0]} minutes to Slurm, not hours",
                  f"for hours write {text}:00", NOTE)


def check_sbatch_args(entry: Entry) -> None:
    defs = entry.walker.root["$defs"]
    covered = {p["x-sbatch"][2:]: k for k, p in defs["keys"]["properties"].items() if "x-sbatch" in p}
    for place, text, node in entry.entries("sbatch_args"):
        flag = text[2:].split("=")[0]
        hint = OWNED.get(flag) or (f"use the key {covered[flag]}" if flag in covered else "")
        if hint:
            message = f"--{flag} belongs to the program" if flag in OWNED else f"--{flag} has a key of its own"
        else:
            if len(flag) > 2 and any(held.startswith(flag) for held in HELD):
                entry.say(place, f"--{flag} makes every job wait until somebody releases it", "remove the flag, or "
                          "be ready with scontrol release", WARNING, node)
                continue
            # getopt takes any beginning of a flag: --outp is --output.
            long = next((f for f in (*OWNED, *covered) if f.startswith(flag)), None)
            if long is None:
                continue
            message = f"sbatch takes --{flag} for --{long}"
            hint = OWNED.get(long) or f"use the key {covered[long]}"
        entry.say(place, message, hint, at=node)


def check_resources(entry: Entry) -> None:
    args = [text for _, text, _ in entry.entries("sbatch_args")]
    if "gpu" not in (entry.given("gres") or "").lower() and not any(a.startswith("--gpus") for a in args):
        entry.say("gres" if entry.given("gres") else "",
                  "without gres the job gets no GPU" if not entry.given("gres") else
                  f"gres is {quoted(entry.given('gres'))}, which asks for no GPU", "write gres: gpu:1 for one", NOTE)
    mem = str(entry.given("mem") or "")
    if mem.isdigit() and 0 < int(mem) < _LITTLE_MB:
        entry.say("mem", f"mem is {mem}, which is {mem} MB", f"write {mem}G for gigabytes", NOTE)
    threads, cpus = entry.given("num_threads"), entry.given("cpus_per_task")
    if threads is not None and cpus is not None and threads != cpus:
        entry.say("num_threads", f"num_threads is {threads} and cpus_per_task is {cpus}", "", NOTE)
    for word in (entry.given("mail_type") or "").split(","):
        word = word.strip()
        if word and word.upper() not in _MAIL_TYPES:
            near = nearest(word, _MAIL_TYPES)
            entry.say("mail_type", f"mail_type has {quoted(word)}, which Slurm would pass over",
                      f"did you mean {near}?" if near else "the words are " + ", ".join(_MAIL_TYPES), WARNING)
