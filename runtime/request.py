"""What a person asked for, checked against the config: the same defaults and refusals for every front door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..schema.errors import UsageError, UserError

if TYPE_CHECKING:
    from ..schema.config import Config

DEFAULT_TRAINER = "sklearn-text"


class RequestError(UsageError):
    """What was asked for does not fit this config: wrong usage. ``field`` names the part of the request."""

    def __init__(self, field: str, message: str, hint: str = ""):
        super().__init__(message, hint)
        self.field = field


def chosen_trainer(name: str | None) -> Any:
    """The TrainerInfo of that name; ``sklearn-text`` when none is named."""
    from .trainers import Trainers

    known = Trainers()
    name = name or DEFAULT_TRAINER
    if name not in known:
        raise RequestError("trainer", f"there is no trainer {name!r}", f"the trainers are: {', '.join(sorted(known))}")
    return known[name]


def chosen_backend(config: Config, info: Any, wanted: str | None) -> str:
    """The backend's name: ``wanted``, else model_training.backend, else the only one that the trainer runs on."""
    name = wanted or config.training["backend"]
    if info.backends is not None and wanted is None:
        name = info.backends[0]
    known_backend(config, name)
    if info.backends is not None and config.backends[name].type not in info.backends:
        raise RequestError(
            "backend", f"{info.name} runs on the {' or '.join(info.backends)} backend only",
            "name no backend, and it goes there",
        )
    return name


def known_backend(config: Config, name: str) -> str:
    if name not in config.backends:
        known = ", ".join(config.backends)
        raise RequestError("backend", f"there is no backend {name!r}", f"the backends are: {known}")
    return name


def chosen_schemas(config: Config, info: Any, wanted: Sequence[str]) -> tuple[str, ...]:
    """``wanted``, else those of writeback that the trainer can train, else all that it can."""
    schemes = {scheme.name: scheme for scheme in config.schemes}
    # one label alone (a box to tick for "unclear") teaches nothing
    can = [name for name, scheme in schemes.items() if scheme.kind in info.kinds and len(scheme.labels) > 1]
    for name in wanted:
        if name not in schemes:
            raise RequestError(
                "schemas", f"there is no annotation scheme {name!r}", f"the schemes are: {', '.join(schemes) or 'none'}"
            )
        if name not in can:
            n = len(schemes[name].labels)
            why = f"it has {n} label{'s' * (n != 1)}, and at least 2 are needed" if (
                schemes[name].kind in info.kinds) else schemes[name].annotation_type
            raise RequestError(
                "schemas", f"{info.name} cannot train scheme {name!r} ({why})",
                f"it can train: {', '.join(can) or 'none of this config'}",
            )
    chosen = list(dict.fromkeys(wanted)) or [s for s in config.training["writeback"]["schemas"] if s in can] or can
    if not chosen:
        raise UserError(f"{info.name} can train none of the annotation schemes of {config.path.name}")
    return tuple(chosen)


def written_params(info: Any, texts: Sequence[str]) -> dict[str, Any]:
    """``k=v`` texts as typed parameters of the trainer."""
    from ..schema.params import nested, parse_param

    try:
        return nested([parse_param(info.params_schema, text) for text in texts])
    except UserError as error:
        raise RequestError("params", error.message, error.hint) from None


def checked_params(info: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    from ..schema.params import check_params, said

    findings = check_params(info.params_schema, dict(params))
    if findings:
        raise RequestError("params", "; ".join(map(said, findings)), findings[0].hint)
    return dict(params)
