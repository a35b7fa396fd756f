"""The JSON file of ``potato training agent --slurm-config``: how that agent's machine submits jobs.

Its keys are those of slurm backends that say something about a job; the same schema and rules check them.
"""

from __future__ import annotations

import hashlib
import json

from .backend_rules import check_backend
from .check import config_schema
from .errors import UsageError
from .findings import ERROR, Finding
from .nodes import node_of
from .walk import BAD, TooManyErrors, Walker

#: Keys of slurm backends that are the server's to say, or the agent's own flags.
_ELSEWHERE = {
    "type": "", "description": "", "host": "the agent runs on that machine", "user": "the agent runs as that user",
    "port": "nobody logs in", "identity_file": "nobody logs in", "python": "start the agent with --python",
    "remote_dir": "start the agent with --workdir", "max_artifact_mb": "model files stay below --workdir",
    "fetch_artifacts": "model files stay below --workdir", "keep_remote": "start the agent with --keep",
    "heartbeat_timeout_s": "set it for the backend in the server's config", "on_disconnect": "an agent gives up by "
    "itself after 300 seconds without the server", "min_free_gpu_mb": "the scheduler chooses the GPUs",
}


class SlurmConfig:
    """``keys``: what the file sets, in the right types. ``notes``: warnings and notes, a line each."""

    def __init__(self, keys: dict, sha256: str, notes: list[str]):
        self.keys, self.sha256, self.notes = keys, sha256, notes


def slurm_config_schema() -> dict:
    """The part of config.yaml's schema that this file has, as a schema of its own."""
    root = config_schema()
    keys = root["$defs"]["slurm"]["properties"]
    return {"$defs": root["$defs"], "type": "object", "additionalProperties": False,
            "properties": {name: prop for name, prop in keys.items() if name not in _ELSEWHERE}}


def read_slurm_config(path: str) -> SlurmConfig:
    """Reads and checks the file. UsageError with every problem in it."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read(1 << 20)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path}: not a JSON object", 'for instance {"partition": "gpu", "time": "2:00:00"}')
    schema = slurm_config_schema()
    walker = Walker(schema)
    node = node_of({key: entry for key, entry in value.items() if key not in _ELSEWHERE})
    values: dict = {}
    try:
        values = walker.object(node, schema, "")
        check_backend("", node, {**values, "type": "slurm"}, walker)
    except TooManyErrors:
        pass
    found = [Finding(ERROR, key, 1, 1, f"{key} is no key of this file", _ELSEWHERE[key])
             for key in value if key in _ELSEWHERE] + walker.findings
    wrong = [_line(path, f) for f in found if f.level == ERROR]
    if wrong:
        raise UsageError("\n".join(wrong))
    keys = {key: entry for key, entry in values.items() if entry is not None and entry is not BAD}
    return SlurmConfig(keys, hashlib.sha256(data).hexdigest(), [_line(path, f) for f in found])


def _line(path: str, finding: Finding) -> str:
    where = finding.path.lstrip(".")
    hint = f" ({finding.hint})" if finding.hint else ""
    return f"{path}: {where + ': ' if where else ''}{finding.level}: {finding.message}{hint}"


def _once(pairs: list) -> dict:
    out: dict = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"the key {key!r} is there twice")
        out[key] = value
    return out
