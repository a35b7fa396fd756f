"""validation.acknowledge: warnings that a project has read and accepts. Only `potato validate` asks."""

from __future__ import annotations

from .findings import ERROR, NOTE, WARNING, Finding
from .nodes import SCALAR, Node

MIN_LENGTH = 12
_PLACE = "backends."
_PREFIX = f"model_training.{_PLACE}"
_LONGEST_NAME = 64
_MAX_ENTRIES = 1000

#: The fixed pieces of all our warnings: an entry that shares none of them, and no path of ours, can only
#: mean one of Potato's own findings. A test holds the warnings of the rules against this list.
PIECES = (
    " is not a key that anything reads",
    " scheme, which nothing can train; ",
    " looks like a secret, which stands here for everyone who reads the config",
    " has no effect: it is cleared before the interpreter starts",
    " has no effect: such variables are removed before sbatch runs",
    " without quotes: it pins GPU number ",
    ". A job that holds a GPU for more than 6 hours is long on a shared cluster; check its policy",
    ", which Slurm would pass over",
    " makes every job wait until somebody releases it",
    " is read by Potato as ",
    "; training goes by the first",
)


def apply(root: Node, findings: list[Finding], potato_checked: bool) -> tuple[list[Finding], list[Finding]]:
    """(findings left, warnings acknowledged). Entries that do nothing become warnings themselves.

    ``potato_checked`` says whether Potato's own findings are among ``findings``.
    """
    listed = (root.get("validation") or Node(SCALAR, "")).get("acknowledge")
    entries = [(i, e) for i, e in enumerate(listed.elements()[:_MAX_ENTRIES] if listed else ())
               if e.kind == SCALAR and not e.is_null]
    if not entries:
        return findings, []
    names = _backend_names(root)
    usable = [(i, e.value, *_named_by(e.value, names)) for i, e in entries if len(e.value) >= MIN_LENGTH]
    used: set[int] = set()
    left: list[Finding] = []
    acknowledged: list[Finding] = []
    for finding in findings:
        hits = []
        if finding.level == WARNING:
            text = f"{finding.path}: {finding.message}"
            backend = _backend_of(finding.path, names)
            hits = [i for i, entry, names_one, named in usable
                    if entry in text and (not names_one or (named is not None and named == backend))]
        used.update(hits)
        (acknowledged if hits else left).append(finding)
    for i, entry in entries:
        if i not in used:
            left.append(_unused(i, entry, findings, potato_checked))
    return left, acknowledged


def _unused(i: int, entry: Node, findings: list[Finding], potato_checked: bool) -> Finding:
    path = f"validation.acknowledge[{i}]"
    text = entry.value
    if len(text) < MIN_LENGTH:
        return Finding(WARNING, path, entry.line, entry.column, f"this entry has {len(text)} characters; at least "
                       f"{MIN_LENGTH} are needed, or it would hide too much", "copy more of the warning's text")
    named = next((f for f in findings if f.level != WARNING and text in f"{f.path}: {f.message}"), None)
    if named:
        return Finding(WARNING, path, entry.line, entry.column,
                       f"this entry names {'an error' if named.level == ERROR else 'a note'}",
                       "remove it: only warnings can be acknowledged")
    if not potato_checked and not could_be_ours(text):
        return Finding(NOTE, path, entry.line, entry.column,
                       "this can only mean one of Potato's own findings, which were not looked for here")
    return Finding(WARNING, path, entry.line, entry.column, "this entry matches no warning",
                   "remove it, or copy the warning's text as it stands; upper and lower case count")


def could_be_ours(text: str) -> bool:
    text = text.lower()
    if "model_training" in text or _PLACE in text:
        return True
    return any(text in piece.lower() or piece.strip().lower() in text for piece in PIECES)


def _backend_names(root: Node) -> set[str]:
    backends = (root.get("model_training") or root).get("backends")
    return {name for name, _, _ in backends.items()} if backends else set()


def _named_by(entry: str, names: set[str]) -> tuple[bool, str | None]:
    """(whether the entry names a backend's path, the backend). The name must be whole, and may have dots in it:
    of `cluster` and `cluster.b` the longer one that fits is meant."""
    at = entry.find(_PLACE)
    return (False, None) if at < 0 else (True, _longest(entry[at + len(_PLACE):], names))


def _backend_of(path: str, names: set[str]) -> str | None:
    """The backend that a path lies in: `cluster.time` is the time of `cluster`, whatever else is called so."""
    return _longest(path[len(_PREFIX):], names, whole=False) if path.startswith(_PREFIX) else None


def _longest(text: str, names: set[str], whole: bool = True) -> str | None:
    """The longest name that ``text`` begins with and that ends where a path's part does, or as a whole."""
    ends = [i for i, char in enumerate(text[:_LONGEST_NAME + 1]) if char in ".: "]
    if whole:
        ends.append(len(text))
    return next((text[:end] for end in reversed(ends) if text[:end] in names), None)
