"""Lets go of what a run holds on its host: processes, job directory, socket, connection. Confirmed, or it raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import places
from ..bounds import bounds
from ..launchers import LaunchError
from ..places import Places
from . import agent_log, lines
from .connection import Ssh
from .explain import failure
from .held import Held
from .line import Line, hang_up, new_private_name, stop_forward
from .plan import read_place, script
from .talk import Result, SshError, run_script


def release_ssh(
    where: Places, run_id: str, target: Mapping[str, Any], patience_s: float, *, proof_s: float = 0.0
) -> list[str]:
    """Lines for the run log. Raises LaunchError while the host has not confirmed. ``proof_s``: what the host may
    take beyond the patience to be sure that nothing is left."""
    run_dir = where.run_dir(run_id)
    held = Held.of(target)
    if not held.controls and not held.touched:
        return []
    facts = read_place(run_dir)
    line = lines.take(run_id)
    if not held.touched:
        _tidy_here(facts, held, line)
        return []
    fresh = line is None or not line.stands()
    if fresh:
        _tidy_here(facts, held, line)
        line = Line(facts, new_private_name())
    assert line is not None
    try:
        if fresh:
            line.up()
        said = run_script(
            line.ssh, "remove_job.sh", script(run_dir, "remove_job.sh"),
            "all but artifacts" if held.spare else "all", held.sockets(), f"{patience_s:g}",
            seconds=bounds().ssh_call_s + patience_s + proof_s,
        )
    except SshError as error:
        raise failure(Ssh.of(facts), error) from None
    finally:
        line.close()
    if said.all("error") or said.code != 0:
        raise LaunchError("; ".join(said.all("error")) or f"{facts['host']} did not confirm the removal")
    _tidy_here(facts, held, None)
    agent_log.append(run_dir / places.AGENT_LOG, said.all("agent"))
    return _told(said, str(facts["host"]))


def _tidy_here(facts: Mapping[str, Any], held: Held, line: Line | None) -> None:
    """Connections and forwards of ours on this machine, those of a supervisor that was killed included."""
    if line is not None:
        line.close()
    ssh = Ssh.of(facts)
    left = [directory for directory in held.controls if line is None or directory != str(line.directory)]
    for directory in left:
        hang_up(ssh, directory)
    if left:
        for there, here in held.doors:
            stop_forward(ssh, f"{there}/s:{here}")


def _told(said: Result, host: str) -> list[str]:
    told = []
    if said.all("ended"):
        told.append(f"ended what was left of the run on {host}")
    told += [f"{name}: {line}" for name in ("slurm", "stderr") for line in said.all(name)]
    told += [f"kept on {host}: {path}" for path in said.all("kept")]
    return told
