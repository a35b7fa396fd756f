"""What a JSON Schema cannot say about model_training: names that must exist, shares that must sum to 1.

The rules for one backend's entry are in backend_rules.
"""

from __future__ import annotations

from .backend_rules import check_backend
from .errors import UserError
from .findings import NOTE, WARNING
from .near import distance, folded, nearest
from .nodes import MAPPING, Node
from .schemes import KINDS
from .walk import BAD, Walker
from .words import quoted

TRAINING = "model_training"
#: Trainers that the product knows, whatever an installation brings.
BUILTIN_NAMES = ("sklearn-text", "hf-text-classification", "llm-lora", "decision-calibrate")
_MAX_SLIPS = 2


def check_top_level(root: Node, walker: Walker) -> None:
    """Warns of keys that nearly say model_training or validation; all others are Potato's."""
    for key, key_node, _ in root.items():
        word = folded(key)
        for known in (TRAINING, "validation"):
            if key not in (TRAINING, "validation") and _slips(word, folded(known)):
                walker.say(key_node, key, f"{key} is not a key that anything reads", f"did you mean {known}?", WARNING)


def _slips(word: str, known: str) -> bool:
    if abs(len(word) - len(known)) > _MAX_SLIPS:
        return False
    return word == known or distance(word, known, _MAX_SLIPS + 1) <= _MAX_SLIPS


class Rules:
    """One pass over model_training. ``values`` are the walker's; wrong ones are BAD and passed over."""

    def __init__(self, node: Node, values: dict, walker: Walker, schemes, trainers):
        self.node = node
        self.values = values
        self.walker = walker
        self.schemes = {s.name: s for s in schemes}
        #: Anything that knows `in`, iteration and, when it knows their parameters, `get`.
        self.trainers = trainers
        self.backends = {"local": "local"}

    def check(self) -> None:
        entries = self.node.get("backends")
        for name, key_node, entry in entries.items() if entries else ():
            path = f"{TRAINING}.backends.{name}"
            if name == "local":
                self.walker.say(key_node, path, "local is a reserved name: this machine is always there and needs "
                                                "no entry", "give the entry another name")
                continue
            if entry.kind == MAPPING:
                self.backends[name] = check_backend(path, entry, self.values["backends"][name], self.walker)
        self.check_backend_name((), "backend")
        self.check_splits()
        self.check_writeback()
        self.check_auto_retrain()

    def find(self, *keys: str) -> tuple[Node | None, object]:
        """The node and the value at a path below model_training; None where it is absent or BAD."""
        node: Node | None = self.node
        value: object = self.values
        for key in keys:
            node = node.get(key) if node else None
            value = value.get(key) if isinstance(value, dict) else None
        return node, None if value is BAD else value

    def check_backend_name(self, where: tuple[str, ...], key: str) -> None:
        node, name = self.find(*where, key)
        entries = self.node.get("backends")
        declared = name in self.backends or (entries is not None and entries.get(str(name)) is not None)
        if node is None or name is None or declared:
            return
        near = nearest(str(name), self.backends)
        known = ", ".join(list(self.backends)[:12])
        self.walker.say(node, ".".join((TRAINING, *where, key)),
                        f"{key} is {quoted(str(name))}, and there is no backend of that name",
                        f"did you mean {near}?" if near else f"the backends are {known}")

    def check_splits(self) -> None:
        node, given = self.find("splits")
        if not isinstance(given, dict) or BAD in given.values():
            return
        shares = {k: p["default"] for k, p in
                  self.walker.root["$defs"][TRAINING]["properties"]["splits"]["properties"].items()}
        words = [f"{k} {given.get(k, shares[k]):g}" + ("" if k in given else " by default") for k in shares]
        total = sum(given.get(k, shares[k]) for k in shares)
        if node and abs(total - 1) > 1e-6:
            self.walker.say(node, f"{TRAINING}.splits",
                            f"the splits sum to {total:.6g} ({', '.join(words)}); they must sum to 1")

    def check_scheme_names(self, *keys: str) -> None:
        node, names = self.find(*keys)
        if node is None or not isinstance(names, list):
            return
        for i, name in enumerate(names):
            if name is BAD:
                continue
            at, path = node.value[i], ".".join((TRAINING, *keys)) + f"[{i}]"
            scheme = self.schemes.get(name)
            if scheme is None:
                near = nearest(name, self.schemes)
                known = ", ".join(list(self.schemes)[:12]) or "none: the config has no annotation_schemes"
                self.walker.say(at, path, f"{quoted(name)} is not an annotation scheme of this config",
                                f"did you mean {near}?" if near else f"the schemes are {known}")
            elif scheme.annotation_type not in KINDS:
                self.walker.say(at, path, f"{name} is a {scheme.annotation_type} scheme, which nothing can "
                                f"train; {', '.join(KINDS)} schemes can be", "remove it", WARNING)

    def check_writeback(self) -> None:
        self.check_scheme_names("writeback", "schemas")
        node, writeback = self.find("writeback")
        if node is None or not isinstance(writeback, dict):
            return
        schemas, unlabeled = writeback.get("schemas"), writeback.get("include_unlabeled")
        if isinstance(schemas, list) and schemas and unlabeled in (None, False):
            self.walker.say(node, f"{TRAINING}.writeback", "there is nothing to publish while include_unlabeled is "
                            "false: only items that nobody has labelled get prelabels",
                            "write include_unlabeled: true", NOTE)

    def check_auto_retrain(self) -> None:
        self.check_backend_name(("auto_retrain",), "backend")
        self.check_scheme_names("auto_retrain", "schemas")
        node, name = self.find("auto_retrain", "trainer")
        trainer = str(name or "sklearn-text")
        if trainer not in BUILTIN_NAMES and trainer not in self.trainers:
            known = dict.fromkeys((*BUILTIN_NAMES, *self.trainers))
            near = nearest(trainer, known)
            self.walker.say(node or self.node, f"{TRAINING}.auto_retrain.trainer",
                            f"there is no trainer {quoted(trainer)}",
                            f"did you mean {near}?" if near else f"the trainers are {', '.join(known)}")
            return
        backend_node, backend = self.find("auto_retrain", "backend")
        if backend_node and backend is not None and trainer == "decision-calibrate" and backend != "local":
            self.walker.say(backend_node, f"{TRAINING}.auto_retrain.backend",
                            "decision-calibrate runs on the local backend only", "write backend: local")
        params_node, params = self.find("auto_retrain", "params")
        if params_node is None or not params:
            return
        try:
            words = self.trainers.get(trainer) if hasattr(self.trainers, "get") else None
        except UserError as broken:
            self.walker.say(node or self.node, f"{TRAINING}.auto_retrain.trainer", broken.message, broken.hint)
            return
        schema = getattr(words, "params_schema", None)
        if schema is not None and isinstance(params, dict):
            checker = Walker(schema)
            checker.findings = self.walker.findings
            self.values["auto_retrain"]["params"] = checker.object(
                params_node, checker.resolve(schema), f"{TRAINING}.auto_retrain.params")
