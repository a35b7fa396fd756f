"""What bash would not even begin to run: told by ``check``, before a run finds out."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

_PREFIX = re.compile(r"^\S*bash: ")


def unparsed(lines: Sequence[str]) -> str:
    """bash's own words about the first thing in a prelude that it cannot parse; "" where there is no such thing, or
    no bash on this machine. An open here-document would swallow what comes behind the prelude: bash only warns."""
    if not lines:
        return ""
    text = "\n".join(lines) + "\n"
    try:
        done = subprocess.run(["bash", "--norc", "--noprofile", "-n"], input=text.encode("utf-8"), capture_output=True,
                              env={"LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"}, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    said = done.stderr.decode("utf-8", "replace").splitlines()
    wrong = said if done.returncode else [line for line in said if "here-document" in line]
    return _PREFIX.sub("", wrong[0])[:500] if wrong else ""
