"""validation.acknowledge: warnings that a project has read and accepts. Only `potato validate` asks."""

from __future__ import annotations

from .findings import ERROR, NOTE, WARNING, Finding
from .nodes import SCALAR, Node

MIN_LENGTH = 12
_PLACE = "backends."

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
    " is read by Potato as ",
)


def apply(root: Node, findings: list[Finding], potato_checked: bool) -> tuple[list[Finding], list[Finding]]:
    """(findings left, warnings acknowledged). Entries that do nothing become warnings themselves.

    ``potato_checked`` says whether Potato's own findings are among ``findings``.
    """
    listed = (root.get("validation") or Node(SCALAR, "")).get("acknowledge")
    entries = [(i, e) for i, e in enumerate(listed.elements() if listed else ()) if e.kind == SCALAR and not e.is_null]
    if not entries:
        return findings, []
    names = _backend_names(root)
    used: set[int] = set()
    left: list[Finding] = []
    acknowledged: list[Finding] = []
    for finding in findings:
        hits = [i for i, e in entries if finding.level == WARNING and len(e.value) >= MIN_LENGTH
                and _matches(e.value, finding, names)]
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


def _backend_names(root: Node) -> list[str]:
    """The config's backends, the longest first, so that `cluster.b` is tried before `cluster`."""
    backends = (root.get("model_training") or root).get("backends")
    return sorted((name for name, _, _ in backends.items()), key=len, reverse=True) if backends else []


def _matches(entry: str, finding: Finding, names: list[str]) -> bool:
    texts = (finding.message, f"{finding.path}: {finding.message}")
    if not any(entry in text for text in texts):
        return False
    at = entry.find(_PLACE)
    if at < 0:
        return True
    # The entry names a backend's path: it is about that backend only, and about its whole name.
    rest = entry[at + len(_PLACE):]
    named = next((n for n in names if rest == n or rest.startswith((n + ".", n + ":", n + " "))), None)
    return named is not None and _backend_of(finding.path, names) == named


def _backend_of(path: str, names: list[str]) -> str | None:
    prefix = f"model_training.{_PLACE}"
    if not path.startswith(prefix):
        return None
    rest = path[len(prefix):]
    # Of `cluster` and `cluster.time`, the path cluster.time is the first's key: the rest must be a key below.
    return next((n for n in names if rest.startswith(n + ".")), None) or (rest if rest in names else None)
