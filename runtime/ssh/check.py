"""``potato training check`` for a host: the questions of a run's login, asked without a run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bounds import bounds
from ..launchers import LaunchError
from . import code, gpus
from .explain import failure
from .line import Line, new_private_name
from .plan import place_facts, wanted_modules
from .prelude import unparsed
from .probe import interpreter, missing
from .talk import Result, SshError, run_script

if TYPE_CHECKING:
    from ...schema.config import Config
    from ..checks import Report

#: Where the name of a distribution is not that of its module.
_MODULES = {"scikit-learn": "sklearn", "pillow": "pil", "pyyaml": "yaml", "opencv-python": "cv2"}


def check_ssh(config: Config, backend: str, trainer: Any, report: Report) -> None:
    """Fills the report. A run could start when the host answers, lets a socket through, and has what it takes."""
    from ... import __version__
    from ...compiler import RunRequest, compile_run

    compiled = compile_run(config, RunRequest("check", backend, trainer.name, ()), version=__version__)
    facts = place_facts(config, config.backends[backend], trainer, compiled.spec.place.venv)
    report.facts.update(host=facts["host"], trainer=trainer.name)
    wrong = unparsed(config.backends[backend].keys.get("prelude") or ())
    if wrong:
        _problem(report, f"bash cannot parse the prelude: {wrong}", "mend it; the number is that of its line")
    try:
        said = ask(facts, compiled.files, wanted_modules(facts))
        if said.all("error"):
            raise LaunchError(said.one("error"), "mend it on the host, or the key of the config that names it")
        python = interpreter(said, str(facts["host"]), str(facts["python"]))
    except LaunchError as error:
        _problem(report, str(error), error.hint)
        return
    report.lines.append(f"{backend}: {facts['host']} is {said.one('host')}, Python {python}")
    report.facts.update(hostname=said.one("host"), python=python, remote_dir=said.one("root"))
    _disk(said, report)
    _cards(said, facts, report)
    _packages(said, facts, report)


def ask(facts: Mapping[str, Any], scripts: Mapping[str, str], word: str, tail: Sequence[bytes] = ()) -> Result:
    """A login, a look, and a socket forwarded and taken back; the last only where the look found nothing wrong, since
    it needs what the look makes. ``word`` and ``tail`` are the rest of what probe.sh reads. Raises LaunchError."""
    line = Line(facts, new_private_name())
    there = new_private_name()
    try:
        line.up()
        said = run_script(
            line.ssh, "probe.sh", scripts["probe.sh"], code.code_hash(), there, word, tail=tail,
            seconds=bounds().ssh_probe_s,
        )
        try:
            if not said.all("error"):
                with tempfile.TemporaryDirectory() as folder:
                    line.forward(f"{there}/s", str(Path(folder, "s")))
        finally:
            with suppress(SshError):
                run_script(line.ssh, "remove_job.sh", scripts["remove_job.sh"], "all", there, "0",
                           seconds=bounds().ssh_call_s)
        return said
    except SshError as error:
        raise failure(str(facts["host"]), error) from None
    finally:
        line.close()


def _disk(said: Result, report: Report) -> None:
    if said.one("free_kb").isdigit():
        free = int(said.one("free_kb")) // 1024
        report.facts["free_mb"] = free
        report.lines.append(f"{free} MB free in {said.one('root')}")


def _cards(said: Result, facts: Mapping[str, Any], report: Report) -> None:
    cards = gpus.cards(said)
    report.facts["gpus"] = [card.to_json() for card in cards]
    report.lines += [str(card) for card in cards]
    try:
        choice = gpus.choose(said, str(facts["host"]), facts)
    except gpus.NoGpu as error:
        _problem(report, str(error), error.hint)
        return
    report.facts["would_get"] = choice.card.to_json() if choice.card else None
    report.lines.append(f"a run would get {choice.words}")


def _packages(said: Result, facts: Mapping[str, Any], report: Report) -> None:
    coming = {_module(text) for text in facts["packages"]} if said.one("venv") == "missing" else set()
    lacking = [name for name in missing(said) if name.lower() not in coming]
    brought = [name for name in missing(said) if name.lower() in coming]
    report.facts.update(missing_packages=lacking, installed_by_first_run=brought)
    trainer = facts["trainer"]
    if brought:
        report.lines.append(f"{', '.join(brought)}: the first run installs it (packages)")
    if said.all("modules_failed"):
        _problem(report, f"{trainer}'s packages could not be looked for on {facts['host']} "
                         f"(exit {said.one('modules_failed')})", "importing torch there fails or hangs")
    elif lacking:
        _problem(report, f"{trainer} needs packages that are not installed there: {', '.join(lacking)}",
                 f"another interpreter (python), or packages; {facts['install_hint']}")
    else:
        report.lines.append(f"{trainer}: its packages are there" + (", or will be" if brought else ""))


def _module(requirement: str) -> str:
    """The likely name of a requirement's module, in lower case."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")
    return _MODULES.get(name, name.replace("-", "_"))


def _problem(report: Report, reason: str, hint: str) -> None:
    report.problem(reason)
    report.lines.append(reason)
    if hint:
        report.lines.append(f"  {hint}")
