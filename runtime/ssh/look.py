"""What every check over ssh begins with: the questions of a run's login, asked without a run, and how it is told."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bounds import bounds
from ..launchers import LaunchError
from . import code
from .explain import failure
from .line import Line, new_private_name
from .prelude import unparsed
from .probe import clock_note, interpreter
from .talk import Result, SshError, run_script

if TYPE_CHECKING:
    from ...schema.config import Backend
    from ..checks import Report


def look(
    backend: Backend, facts: Mapping[str, Any], scripts: Mapping[str, str], report: Report, word: str,
    tail: Sequence[bytes] = (),
) -> Result | None:
    """What the host says to ``word`` and ``tail``, the rest of what its probe.sh reads. None when no run could start
    there, which is in the report then."""
    host = str(facts["host"])
    report.facts.update(host=host, trainer=facts["trainer"])
    wrong = unparsed(backend.keys.get("prelude") or ())
    if wrong:
        problem(report, f"bash cannot parse the prelude: {wrong}", "mend it; the number is that of its line")
    try:
        said, now = _ask(facts, scripts, word, tail)
        if said.all("error"):
            raise LaunchError(said.one("error"), "mend it on the host, or the key of the config that names it")
        python = interpreter(said, host, str(facts["python"]))
    except LaunchError as error:
        problem(report, str(error), error.hint)
        return None
    report.lines.append(f"{backend.name}: {host} is {said.one('host')}, Python {python}")
    report.facts.update(hostname=said.one("host"), python=python, remote_dir=said.one("root"))
    report.lines += filter(None, [clock_note(said, host, now)])
    return said


def free_space(said: Result, report: Report) -> None:
    if said.one("free_kb").isdigit():
        report.facts["free_mb"] = int(said.one("free_kb")) // 1024
        report.lines.append(f"{report.facts['free_mb']} MB free in {said.one('root')}")


def problem(report: Report, reason: str, hint: str) -> None:
    report.problem(reason)
    report.lines.append(reason)
    if hint:
        report.lines.append(f"  {hint}")


def _ask(
    facts: Mapping[str, Any], scripts: Mapping[str, str], word: str, tail: Sequence[bytes]
) -> tuple[Result, float]:
    """The host's answer, and when it was there. A login, a look, and a socket forwarded and taken back; the last only
    where the look found nothing wrong, since it needs what the look makes. Raises LaunchError."""
    line = Line(facts, new_private_name())
    there = new_private_name()
    try:
        line.up()
        said = run_script(
            line.ssh, "probe.sh", scripts["probe.sh"], code.code_hash(), there, word, tail=tail,
            seconds=bounds().ssh_probe_s,
        )
        now = time.time()
        try:
            if not said.all("error"):
                with tempfile.TemporaryDirectory() as folder:
                    line.forward(f"{there}/s", str(Path(folder, "s")))
        finally:
            with suppress(SshError):
                run_script(line.ssh, "remove_job.sh", scripts["remove_job.sh"], "all", there, "0",
                           seconds=bounds().ssh_call_s)
        return said, now
    except SshError as error:
        raise failure(line.ssh, error) from None
    finally:
        line.close()
