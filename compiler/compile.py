"""The whole room in one function: config and request in, job and scripts out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..schema.config import Config
from .jobspec import JobSpec, job_spec
from .place import place_of_agent
from .request import RunRequest
from .scripts import Scripts


class CompiledRun(NamedTuple):
    """One run, ready to be looked at or executed.

    ``files`` maps script names to their texts, in a fixed order; a backend that needs no shell has none.
    ``main`` names the script that matters most, or is None. ``note`` says, as shell comments, what such
    a backend runs instead, and is empty elsewhere.
    """

    spec: JobSpec
    files: Mapping[str, str]
    main: str | None
    note: str = ""


_NOTES = {
    "local": """\
# Backend local needs no script. The project's supervisor starts, on this machine:
#
#   python -m potato_training.worker.agent
#
# and that, in the run's job directory:
#
#   python -m potato_training.worker --spec spec.json --exit-code-file exit_code
""",
    "agent": """\
# Backend {name} needs no script. Somebody starts, on the training machine:
#
#   potato training agent --server http://<this-server>:8000 --backend {name}
#
# and that, for each run, in a job directory of its own:
#
#   python -m potato_training.worker --spec spec.json --exit-code-file exit_code
""",
}


def note_of(kind: str, name: str) -> str:
    """What a backend without a script runs instead, as shell comments; "" for one that has scripts."""
    return _NOTES.get(kind, "").format(name=name)


def compile_job(keys: Mapping[str, Any], *, name: str, run_id: str, python: str, sha256: str, version: str) -> str:
    """job.sh for an agent that submits its own workers (``potato training agent --slurm-config``).

    ``keys`` are that file's: the sbatch keys, job_python, prelude, env, env_file, num_threads. ``name`` is the
    backend's, ``python`` the agent's interpreter, ``sha256`` the file's. Pure, like ``compile_run``.
    """
    place = place_of_agent(name, keys, python)
    return Scripts(JobSpec(version, sha256, run_id, 1, "", (), {}, place, ""))["job.sh"]


def compile_run(config: Config, request: RunRequest, *, version: str) -> CompiledRun:
    """Compiles ``request``: the same config, request and version give the same bytes, always.

    Pure: no host, no clock, no randomness, no files but the templates. KeyError when the config has no
    backend of that name.
    """
    spec = job_spec(config, request, version=version)
    files = Scripts(spec)
    main = next(iter(files), None)
    return CompiledRun(spec, files, main, "" if main else note_of(spec.place.type, spec.place.name))
