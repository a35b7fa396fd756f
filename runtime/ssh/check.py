"""``potato training check`` for a host: the questions of a run's login, asked without a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import gpus
from .look import free_space, look, problem
from .plan import place_facts, wanted_modules
from .probe import missing
from .talk import Result

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
    said = look(config.backends[backend], facts, compiled.files, report, wanted_modules(facts))
    if said is None:
        return
    free_space(said, report)
    _cards(said, facts, report)
    _packages(said, facts, trainer, report)


def _cards(said: Result, facts: Mapping[str, Any], report: Report) -> None:
    cards = gpus.cards(said)
    report.facts["gpus"] = [card.to_json() for card in cards]
    report.lines += [str(card) for card in cards]
    try:
        choice = gpus.choose(said, str(facts["host"]), facts)
    except gpus.NoGpu as error:
        problem(report, str(error), error.hint)
        return
    report.facts["would_get"] = choice.card.to_json() if choice.card else None
    report.lines.append(f"a run would get {choice.words}")


def _packages(said: Result, facts: Mapping[str, Any], info: Any, report: Report) -> None:
    coming = {_module(text) for text in facts["packages"]} if said.one("venv") == "missing" else set()
    lacking = [name for name in missing(said) if name.lower() not in coming]
    brought = [name for name in missing(said) if name.lower() in coming]
    report.facts.update(missing_packages=lacking, installed_by_first_run=brought)
    trainer = facts["trainer"]
    if brought:
        report.lines.append(f"{', '.join(brought)}: the first run installs it (packages)")
    if said.all("modules_failed"):
        problem(report, f"{trainer}'s packages could not be looked for on {facts['host']} "
                        f"(exit {said.one('modules_failed')})", "importing torch there fails or hangs")
    elif lacking:
        problem(report, f"{trainer} needs packages that are not installed there: {', '.join(lacking)}",
                f"another interpreter (python), or packages; {info.install_line(said.one('python').partition(' ')[2])}")
    else:
        report.lines.append(f"{trainer}: its packages are there" + (", or will be" if brought else ""))


def _module(requirement: str) -> str:
    """The likely name of a requirement's module, in lower case."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")
    return _MODULES.get(name, name.replace("-", "_"))
