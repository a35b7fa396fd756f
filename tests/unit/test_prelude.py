"""A prelude that bash cannot parse is told before a run."""

from __future__ import annotations

import shutil

import pytest
from potato_training.runtime.ssh.prelude import unparsed

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")


@pytest.mark.parametrize(("lines", "word"), [
    (["true", "if true; then"], "line 3: syntax error"), (["cat <<EOF"], "here-document"),
    (["echo 'open"], "line 1: unexpected EOF"), (["f() {", "true"], "syntax error"),
    (["true )"], "line 1: syntax error"),
])
def test_what_bash_cannot_parse(lines, word):
    assert word in unparsed(lines)
    assert not unparsed(lines).startswith("bash")


@pytest.mark.parametrize("lines", [
    [], ["exit 3"], ["no-such-program $x"], ["if true; then", "  false", "fi"], ["cat <<EOF", "x", "EOF"],
    ["[[ a =~ b ]] && x=(1 2)"],
])
def test_what_it_can_and_nothing_is_run(lines, tmp_path):
    assert unparsed([*lines, f"echo > '{tmp_path}/made'"]) == ""
    assert not (tmp_path / "made").exists()
