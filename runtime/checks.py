"""Whether a run could start on a backend now, without starting one."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..schema.errors import UsageError

if TYPE_CHECKING:
    from ..schema.config import Config

#: A broken driver can make nvidia-smi hang for ever.
_NVIDIA_SMI_BOUND_S = 20


@dataclass
class Report:
    """What a check found. ``ok`` says whether a run could start; ``lines`` are for a person, in order."""

    backend: str
    kind: str
    ok: bool = True
    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def problem(self, text: str) -> None:
        self.ok = False
        self.problems.append(text)

    def to_json(self) -> dict[str, Any]:
        return {"backend": self.backend, "type": self.kind, "ok": self.ok, "lines": self.lines,
                "problems": self.problems, **self.facts}


def check(config: Config, backend: str, trainer: str | None = None) -> Report:
    """Checks one backend for one trainer.

    The trainer is the one named, else auto_retrain's, else hf-text-classification. Raises UsageError for
    a backend or trainer that is not there.
    """
    from .trainers import Trainers

    if backend not in config.backends:
        raise UsageError(f"there is no backend {backend!r}", f"the backends are: {', '.join(config.backends)}")
    known = Trainers()
    name = trainer or _auto_trainer(config, known)
    if name not in known:
        raise UsageError(f"there is no trainer {name!r}", f"the trainers are: {', '.join(sorted(known))}")
    report = _look(config, backend, known[name])
    _owed(config, report)
    return report


def _look(config: Config, backend: str, trainer: Any) -> Report:
    kind = config.backends[backend].type
    if kind == "agent":
        return _check_agent(config, backend)
    report = Report(backend, kind)
    if kind == "ssh":
        from .ssh.check import check_ssh

        check_ssh(config, backend, trainer, report)
    elif kind == "slurm":
        from .slurm.check import check_slurm

        check_slurm(config, backend, trainer, report)
    else:
        _check_local(config, trainer, report)
    return report


def _owed(config: Config, report: Report) -> None:
    """What ended runs still hold there: no reason against another run, but nobody else may say so."""
    from . import debts
    from .lookup import open_store

    store = open_store(config.task_dir)
    held = debts.of_backend(store, report.backend) if store else []
    report.facts["to_be_released"] = [
        {"run_id": release.run_id, "since": release.created, "why": release.last_error,
         "rests": store is not None and debts.rests(store, release)} for release in held
    ]
    report.lines += [f"still to be released: {release.run_id} {release.last_error}".rstrip() for release in held]
    if any(entry["rests"] for entry in report.facts["to_be_released"]):
        report.lines.append(f"  `potato training supervise {config.path.name}` asks the host once more")


def _auto_trainer(config: Config, known: Any) -> str:
    wanted = (config.training.get("auto_retrain") or {}).get("trainer")
    enabled = (config.training.get("auto_retrain") or {}).get("enabled")
    return str(wanted) if enabled and wanted in known else "hf-text-classification"


def _check_agent(config: Config, backend: str) -> Report:
    """The token's record: nothing can connect to the machine, so nothing else can be known from here."""
    from .lookup import open_store
    from .tokens import BACKEND

    report = Report(backend, "agent")
    store = open_store(config.task_dir)
    rows = [row for row in store.tokens() if (row["kind"], row["name"]) == (BACKEND, backend)] if store else []
    register = f"potato training register {backend} {config.path.name}"
    if not rows:
        report.problem("no token issued yet")
        report.lines.append(f"{backend}: no token issued yet; {register}")
        return report
    issued, seen = _utc(rows[0]["created"]), rows[0]["last_seen"]
    report.facts.update(token_issued=rows[0]["created"], last_seen=seen)
    report.lines.append(f"{backend}: token issued {issued}")
    if seen is None:
        start = f"potato training agent --backend {backend}"
        report.lines.append(f"note: no agent has used it yet; start `{start}` on that machine")
    else:
        report.lines.append(f"last seen {_utc(seen)}")
    return report


def _utc(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(moment))


def _check_local(config: Config, info: Any, report: Report) -> None:
    device, warning = local_device(config.training["device"])
    report.facts["device"] = device
    report.lines.append(f"local: this machine, {device}")
    if warning:
        report.lines.append(f"warning: {warning}")
    missing = [package for package in info.packages if not installed(package)]
    report.facts.update(trainer=info.name, missing_packages=missing)
    if missing:
        report.problem(f"{info.name} needs packages that are not installed here: {', '.join(missing)}")
        report.lines.append(f"{report.problems[-1]}; {info.install_line(sys.executable)}")
    else:
        report.lines.append(f"{info.name}: its packages are installed")


def installed(package: str) -> bool:
    """Whether a package could be imported here, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def local_device(wanted: str) -> tuple[str, str]:
    """(the device that a local run would use, in words; a warning when it is not the one asked for)."""
    gpus = [] if wanted in ("cpu", "mps") else _cuda_names()
    metal = platform.system() == "Darwin" and platform.machine() == "arm64"
    cpu = f"CPU, {usable_threads()} threads"
    if wanted == "cpu":
        return cpu, ""
    if wanted.startswith("cuda"):
        index = int(wanted.partition(":")[2] or 0)
        if index < len(gpus):
            return gpus[index], ""
        return cpu, f"device {wanted} was asked for and is not here"
    if wanted == "mps" or (wanted == "auto" and not gpus):
        if metal:
            return "Apple Metal (mps)", ""
        return cpu, "device mps was asked for and is not here" if wanted == "mps" else ""
    return gpus[0], ""


def usable_threads() -> int:
    """Processors that this process may use, not those of the whole machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cuda_names() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=_NVIDIA_SMI_BOUND_S, check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in asked.stdout.splitlines() if line.strip()]
