"""A checked config: what every other room gets to see of config.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import UserError
from .findings import ERROR, NOTE, WARNING, Finding

BUILTIN_NAMES = ("sklearn-text", "hf-text-classification", "llm-lora", "decision-calibrate")

#: What can be trained, by annotation type.
KINDS = {"radio": "nominal", "select": "nominal", "likert": "ordinal", "multiselect": "multilabel"}


@dataclass(frozen=True)
class Scheme:
    """One annotation scheme. ``kind`` is None when nothing can train it; ``labels`` keep its order."""

    name: str
    annotation_type: str
    kind: str | None
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Backend:
    """One place to run. ``keys`` has every key that the type accepts, defaults applied; None = not set."""

    name: str
    type: str
    keys: Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """A config without errors. ``raw`` is the whole document with its scalars as the text written."""

    path: Path
    sha256: str
    raw: Mapping[str, Any]
    training: Mapping[str, Any]
    backends: Mapping[str, Backend]
    schemes: tuple[Scheme, ...]
    task_dir: Path
    data_files: tuple[Path, ...]
    id_key: str
    text_key: str
    output_dir: Path
    machine_annotators: tuple[str, ...]

    def scheme(self, name: str) -> Scheme | None:
        return next((s for s in self.schemes if s.name == name), None)


@dataclass(frozen=True)
class Checked:
    """``config`` is None exactly when there are errors."""

    config: Config | None
    findings: tuple[Finding, ...]
    acknowledged: tuple[Finding, ...] = ()

    def _level(self, level: str) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.level == level)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return self._level(ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return self._level(WARNING)

    @property
    def notes(self) -> tuple[Finding, ...]:
        return self._level(NOTE)


class ConfigError(UserError):
    """The config has errors; the message is what `potato validate` prints about it."""

    def __init__(self, findings: Iterable[Finding], path: str):
        self.findings = tuple(findings)
        self.path = path
        lines = [f"{path}:{f.line}:{f.column}: {f.level}: {f.path}: {f.message}" for f in self.findings]
        super().__init__("\n".join(lines))


# --- a first reader: good configs only; the checking one takes its place ------------------------

_SBATCH = ("partition", "account", "qos", "constraint", "nodelist", "exclude", "reservation", "gres", "time",
           "cpus_per_task", "mem", "nice", "mail_type", "mail_user")
_REMOTE = {"description": None, "host": None, "user": None, "port": None, "identity_file": None,
           "python": "python3", "env": {}, "prelude": [], "num_threads": None, "max_artifact_mb": 2048,
           "fetch_artifacts": True, "keep_remote": False, "heartbeat_timeout_s": 120, "min_free_gpu_mb": 2000,
           "on_disconnect": "stop", "env_file": None}
_DEFAULTS = {
    "ssh": {**_REMOTE, "remote_dir": "~/.cache/potato-training", "packages": [], "gpus": "auto"},
    "slurm": {**_REMOTE, "remote_dir": None, "job_python": None, "poll_interval_s": 30, "requeue": False,
              "sbatch_args": [], **dict.fromkeys(_SBATCH)},
    "agent": {"description": None, "heartbeat_timeout_s": 120, "queue_timeout_s": None},
}
_TRAINING = {
    "enabled": False, "backend": "local", "max_wall_seconds": None, "grace_seconds": 20, "device": "auto",
    "num_threads": None, "max_ram_mb": None, "retain_runs": 5, "split_seed": 0,
    "splits": {"train": 0.7, "val": 0.15, "test": 0.15}, "aggregation": "consensus", "max_predictions_mb": 512,
    "writeback": {"schemas": [], "min_confidence": 0.0, "include_unlabeled": False, "field": "predictions"},
    "notify": {"webhook": None},
    "auto_retrain": {"enabled": False, "trainer": "sklearn-text", "schemas": [], "params": {},
                     "update_frequency": 25, "min_interval_s": 600, "backend": None},
}


def _value(text: Any) -> Any:
    if isinstance(text, dict):
        return {k: _value(v) for k, v in text.items()}
    if isinstance(text, list):
        return [_value(v) for v in text]
    if text in ("true", "false"):
        return text == "true"
    for make in (int, float):
        try:
            return make(text)
        except ValueError:
            pass
    return text


def _merge(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    out = {k: dict(v) if isinstance(v, dict) else list(v) if isinstance(v, list) else v
           for k, v in defaults.items()}
    for key, value in given.items():
        out[key] = _merge(defaults[key], value) if isinstance(defaults.get(key), dict) else value
    return out


def load(path: str | Path, *, trainers: Mapping[str, Any] | Iterable[str] = BUILTIN_NAMES) -> Checked:
    """Reads and checks ``path``. Never raises for a bad file: the findings say what is wrong."""
    import hashlib

    import yaml

    where = Path(path).absolute()
    data = where.read_bytes()
    raw = yaml.load(data, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506 - texts only
    given = dict(raw.get("model_training") or {})
    entries = given.pop("backends", {})
    training = _merge(_TRAINING, _value(given))
    backends = {"local": Backend("local", "local", {})}
    for name, entry in entries.items():
        keys = {k: v if k in (*_SBATCH, "gpus", "host", "user", "python", "remote_dir") and k != "cpus_per_task"
                else _value(v) for k, v in entry.items() if k != "type"}
        keys["env"] = dict(entry.get("env", {}))
        backends[name] = Backend(name, entry["type"], _merge(_DEFAULTS[entry["type"]], keys))
    schemes = []
    for s in raw.get("annotation_schemes", []):
        labels = [x["name"] if isinstance(x, dict) else x for x in s.get("labels", [])]
        if s["annotation_type"] == "likert" and not labels:
            labels = [str(n) for n in range(1, int(s.get("size", 5)) + 1)]
        schemes.append(Scheme(s["name"], s["annotation_type"], KINDS.get(s["annotation_type"]), tuple(labels)))
    task_dir = (where.parent / Path(raw.get("task_dir", ".")).expanduser()).resolve()
    files = [f["path"] if isinstance(f, dict) else f for f in raw.get("data_files", [])]
    props = raw.get("item_properties", {})
    config = Config(
        path=where, sha256=hashlib.sha256(data).hexdigest(), raw=raw, training=training, backends=backends,
        schemes=tuple(schemes), task_dir=task_dir, data_files=tuple(task_dir / f for f in files),
        id_key=props.get("id_key", "id"), text_key=props.get("text_key", "text"),
        output_dir=task_dir / raw.get("output_annotation_dir", "annotation_output"),
        machine_annotators=tuple(raw.get("machine_annotators", [])),
    )
    return Checked(config, ())


def load_or_raise(path: str | Path, *, trainers: Mapping[str, Any] | Iterable[str] = BUILTIN_NAMES) -> Config:
    """The checked config of ``path``; ConfigError carrying the findings when it has errors."""
    checked = load(path, trainers=trainers)
    if checked.config is None:
        raise ConfigError(checked.findings, str(path))
    return checked.config
