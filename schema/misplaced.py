"""What to say about a key that does not belong where it stands. Imported when there is one."""

from __future__ import annotations

from .near import folded, nearest
from .sbatch_flags import OWNED
from .walk import Walker
from .words import article, quoted

#: The types of backends, whose keys are most often confused with each other's.
_TYPES = ("ssh", "slurm", "agent")


def unknown_key(key: str, schema: dict, walker: Walker) -> tuple[str, str]:
    """(message, hint) for a key that ``schema`` does not have."""
    own = schema.get("properties", {})
    title = schema.get("title")
    whose = f" of {article(title)} backend" if title in _TYPES else ""
    if title in _TYPES:
        takers = [t for t in _TYPES if t != title and key in walker.root["$defs"][t]["properties"]]
        if takers:
            return (f"{key} is not a key{whose}, only of {' and '.join(takers)} backends",
                    _reason(key, schema, walker))
    message = f"unknown key {quoted(key)}" + whose.replace(" of ", " for ", 1)
    synonym = _synonym(key, own, walker)
    if synonym:
        return message, f"did you mean {synonym}?"
    if title == "slurm" and key.replace("_", "-") in OWNED:
        return message, OWNED[key.replace("_", "-")]
    near = nearest(key, own)
    if near:
        return message, f"did you mean {near}?"
    home = _home(key, walker)
    if home:
        return message, f"{key} belongs {home}"
    if title in _TYPES:
        others = {k: t for t in _TYPES for k in walker.root["$defs"][t]["properties"]}
        near = _synonym(key, {k: {"$ref": f"#/$defs/{t}/properties/{k}"} for k, t in others.items()}, walker) \
            or nearest(key, others)
        if near:
            reason = _reason(near, schema, walker)
            return message, f"{near} is a key of {others[near]} backends only" + (f": {reason}" if reason else "")
    if len(own) <= 12:
        return message, "the keys here are " + ", ".join(own)
    more = "; other flags of sbatch go under sbatch_args" if title == "slurm" else ""
    return message, f"see the keys in docs/config.md, or run `potato schema`{more}"


def _reason(key: str, schema: dict, walker: Walker) -> str:
    refused = schema.get("x-refused", {})
    if key in refused:
        return refused[key]
    slurm = walker.root["$defs"]["slurm"]["properties"]
    if key in ("requeue", "sbatch_args") or "x-sbatch" in walker.resolve(slurm.get(key, {})):
        return refused.get("*sbatch*", "")
    return ""


def _synonym(key: str, properties: dict, walker: Walker) -> str | None:
    word = folded(key)
    for name, prop in properties.items():
        if any(folded(also) == word for also in walker.resolve(prop).get("x-also", ())):
            return name
    return None


def _home(key: str, walker: Walker) -> str:
    """Where ``key`` would be right: "under model_training.writeback", or ""."""
    if "model_training" not in walker.root.get("$defs", {}):
        return ""
    training = walker.root["$defs"]["model_training"]["properties"]
    if key in training:
        return "under model_training"
    for name, prop in training.items():
        if key in prop.get("properties", {}) and key not in ("enabled", "backend", "schemas"):
            return f"under model_training.{name}"
    takers = [t for t in _TYPES if key in walker.root["$defs"][t]["properties"]]
    if takers:
        return f"in an entry of model_training.backends ({', '.join(takers)})"
    return ""
