"""``potato training check`` for a cluster: the questions of a run's login, and the scheduler's own opinion."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...worker.slurm import is_weather
from ..ssh.look import free_space, look, problem
from ..ssh.plan import host_facts
from ..ssh.talk import Result
from .login import PATH_HINT, PROGRAMS, has, lacking
from .partitions import Wish, limits
from .plan import JOB_SCRIPT

if TYPE_CHECKING:
    from ...schema.config import Config
    from ..checks import Report

_LOCAL = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108
_STARTS = re.compile(r"Job \d+ to start at (\S+) using (.*)")
_NO_SUCH_OPTION = re.compile(r"unrecognized option|invalid option|unknown option", re.IGNORECASE)


def check_slurm(config: Config, backend: str, trainer: Any, report: Report) -> None:
    """Fills the report. A run could start when the login node answers and has what it takes, and sbatch says so."""
    from ... import __version__
    from ...compiler import RunRequest, compile_run

    compiled = compile_run(config, RunRequest("check", backend, trainer.name, ()), version=__version__)
    keys = config.backends[backend].keys
    facts = host_facts(config, config.backends[backend], trainer)
    # with the script that a run would submit
    said = look(config.backends[backend], facts, compiled.files, report, "test",
                (compiled.files[JOB_SCRIPT].encode("utf-8"),))
    if said is None:
        return
    _storage(said, report)
    _programs(said, str(facts["host"]), report)
    _partitions(said, keys, report)
    _verdict(said, report)
    _nodes(said, compiled.spec.place.worker_python, trainer, report)


def _storage(said: Result, report: Report) -> None:
    root = said.one("root")
    if f"{root}/".startswith(_LOCAL):
        problem(report, f"remote_dir is {root}, which each node has for itself",
                "name a directory that the login node and the compute nodes share")
    free_space(said, report)


def _programs(said: Result, host: str, report: Report) -> None:
    report.facts["programs"] = {name: said.one(name) for name in (*PROGRAMS, "scontrol") if has(said, name)}
    report.facts["slurm"] = said.one("slurm")
    for program in PROGRAMS:
        if not has(said, program):
            problem(report, lacking(host, program), PATH_HINT)
    if has(said, "sbatch"):
        report.lines.append(f"{said.one('slurm') or 'Slurm'}: {said.one('sbatch')}")
    if not has(said, "scontrol"):
        report.lines.append("note: there is no scontrol: why a job ended is known from its own output alone")


def _partitions(said: Result, keys: Mapping[str, Any], report: Report) -> None:
    wish = Wish(str(keys.get("partition") or ""), str(keys.get("time") or ""), keys.get("cpus_per_task"),
                str(keys.get("mem") or ""))
    for reason, hint in limits(said.all("partition"), wish):
        problem(report, reason, hint)


def _verdict(said: Result, report: Report) -> None:
    """What ``sbatch --test-only`` said of the script."""
    if not said.all("test_code") or not has(said, "sbatch"):
        return
    words = "; ".join(_bare(line) for line in (said.all("test_err") or said.all("test_out")) if _bare(line))[:2000]
    test: dict[str, Any] = {"ok": True, "words": words}
    report.facts["test_only"] = test
    if said.all("test_cancelled"):
        report.lines.append(f"note: sbatch does not know --test-only here and submitted job "
                            f"{said.one('test_cancelled')}, which was cancelled at once")
    elif _NO_SUCH_OPTION.search(words) and "test-only" in words:
        report.lines.append("note: sbatch does not know --test-only here; only a run tells whether the job is taken")
    elif said.one("test_code") in ("124", "137"):
        test["ok"] = False
        problem(report, "sbatch --test-only did not answer in 60 seconds", "the controller is busy, or away")
    elif said.one("test_code") != "0" and is_weather(words):
        test["ok"] = False
        problem(report, f"cannot reach Slurm: {words}", "its controller is busy, or away; a run would wait for it")
    elif said.one("test_code") != "0":
        test["ok"] = False
        code_ = said.one("test_code")
        problem(report, f"sbatch refuses the job: {words or f'exit code {code_}'}", "mend the key that it names")
    else:
        found = _STARTS.search(words)
        test["start"] = found[1] if found else None
        report.lines.append(f"sbatch takes the job: to start at {found[1]} using {found[2]}" if found else
                            "sbatch takes the job")


def _nodes(said: Result, job_python: str, trainer: Any, report: Report) -> None:
    there = said.one("job_python") == "there"
    report.facts.update(job_python=job_python, job_python_on_login_node=there)
    seen = "which the login node has" if there else "which the login node does not have"
    report.lines.append(f"jobs run {job_python}, {seen}")
    wanted = f"; {trainer.name} needs {', '.join(trainer.packages)} there" if trainer.packages else ""
    report.lines.append(f"note: what the compute nodes have installed cannot be seen from here{wanted}")


def _bare(line: str) -> str:
    return re.sub(r"^(sbatch|scancel): (error: )?|^allocation failure: ", "", line.strip())
