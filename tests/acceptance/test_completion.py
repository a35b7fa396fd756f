"""``potato completion``: real shells complete with what it prints."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

POTATO = [sys.executable, "-m", "potato_training.cli"]


def printed(*arguments):
    return subprocess.run([*POTATO, "completion", *arguments], capture_output=True, text=True, check=True).stdout


def offered(script, *words, name="potato"):
    """What bash offers at the end of these words."""
    line = " ".join(words)
    ask = f"""
source /dev/stdin
COMP_LINE={line!r} COMP_POINT={len(line)} COMP_CWORD={len(words) - 1} COMP_WORDS=({" ".join(repr(w) for w in words)})
spec=$(complete -p {name}) || exit 9
function=${{spec##*-F }}
"${{function%% *}}" {name} {words[-1]!r} {words[-2]!r}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    ran = subprocess.run(["bash", "--norc", "-c", ask], input=script, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@pytest.mark.parametrize("name", ["potato", "potato-training"])
def test_bash_completes_commands_and_options(name, tmp_path):
    script = printed("bash", "--name", name)
    assert offered(script, name, "val", name=name) == ["validate"]
    assert offered(script, name, "training", "che", name=name) == ["check"]
    assert "--backend" in offered(script, name, "training", "run", "--b", name=name)
    assert "--token-file" in offered(script, name, "training", "agent", "--t", name=name)


def test_the_options_offered_for_the_agent_are_its_own():
    help_text = subprocess.run([*POTATO, "training", "agent", "--help"], capture_output=True, text=True).stdout
    wanted = set(re.findall(r"--[a-z-]+", help_text.split("options:")[1])) - {"--help"}
    from potato_training.cli.agent import OPTIONS

    assert set(OPTIONS) == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_each_shell_reads_its_script(shell):
    script = printed(shell)
    assert "validate" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine")
    checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
