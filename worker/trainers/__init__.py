"""The trainers: one file each, listed without importing their libraries."""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any, Dict, List, Type

from ..failures import BadSpec, MissingDependency, not_imported
from .base import Trainer, TrainerInfo

#: name -> "module:class", modules of this package. A new trainer is one file and one line here.
_BUILT_IN = {
    "sklearn-text": "sklearn_text:SklearnText",
    "hf-text-classification": "hf_text_classification:HFTextClassification",
    "llm-lora": "llm_lora:LLMLora",
    "decision-calibrate": "decision_calibrate:DecisionCalibrate",
}
BUILTIN_NAMES = tuple(_BUILT_IN)
ENTRY_POINTS = "potato_training.trainers"


def catalogue(plugins: bool = False) -> Dict[str, TrainerInfo]:
    """{name: TrainerInfo} of the built-in trainers, and with ``plugins`` of the installed ones that can be imported."""
    found = {name: load(name).info for name in _BUILT_IN}
    if plugins:
        for name in plugin_names():
            with contextlib.suppress(BadSpec, MissingDependency):      # said by name when one asks for it
                found[name] = load(name).info
    return found


def plugin_names() -> List[str]:
    """Names that installed entry points add to the built-in ones, sorted."""
    return sorted(set(_entry_points()) - set(_BUILT_IN))


def load(name: str) -> Type[Trainer]:
    """The Trainer class of that name; entry points are looked at only when it is not built in.

    BadSpec for a name that nobody brings, MissingDependency for a plug-in that cannot be imported.
    """
    if name in _BUILT_IN:
        module, cls = _BUILT_IN[name].split(":")
        return getattr(import_module("." + module, __name__), cls)
    entries = _entry_points()
    if name not in entries:
        known = sorted(set(BUILTIN_NAMES) | set(entries))
        raise BadSpec("unknown trainer %r" % name, "available: %s; others must be installed where the worker runs"
                      % ", ".join(known))
    try:
        found = entries[name].load()
    except Exception as error:
        raise not_imported(name, "%s: %s" % (type(error).__name__, error), "") from error
    good = isinstance(found, type) and issubclass(found, Trainer)
    if not (good and isinstance(getattr(found, "info", None), TrainerInfo)):
        raise BadSpec("trainer %r is no subclass of Trainer with an info" % name)
    return found


def _entry_points() -> Dict[str, Any]:
    from importlib.metadata import entry_points

    found = entry_points()
    # Python 3.10 has select; 3.8 and 3.9 give a plain mapping of groups, which may name a distribution twice.
    entries = found.select(group=ENTRY_POINTS) if hasattr(found, "select") else found.get(ENTRY_POINTS, ())
    return {entry.name: entry for entry in entries}
