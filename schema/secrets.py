"""What looks like a secret in a config, where everyone reads it who may read the project."""

from __future__ import annotations

import re

MESSAGE = "{} looks like a secret, which stands here for everyone who reads the config"
IN_FILE = "put it into a file on the host that only you can read, and name that file with env_file"
BY_ITSELF = "let git or pip on the host log in by itself (~/.netrc, a credential helper), and write the address alone"

_WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
#: What a variable ends in that says where something is: the secret itself does not stand in the config.
_PLACES = ("FILE", "PATH", "DIR")
#: NAME=value, as a shell line or --export has it. What a variable, a command or a path stands for is no secret yet.
_ASSIGNED = re.compile(r"""(?<![^\s;,=&|(])([A-Za-z_][A-Za-z0-9_]*)=["']?[^\s"'`$;&|)~/]""")
_IN_ADDRESS = re.compile(r"://(?:[^/\s:@$]*:)?[^/\s:@$]+@")
_PLAIN_USER = re.compile(r"ssh://|://git@")


def is_name(name: str) -> bool:
    """Whether a variable of this name holds a secret, by all appearance."""
    words = name.upper().split("_")
    return words[-1] not in _PLACES and any(word.endswith(_WORDS) for word in words)


def assigned(line: str) -> str:
    """The first variable with a name of a secret that is given its value in a line; else empty."""
    return next((name for name in _ASSIGNED.findall(line) if is_name(name)), "")


def in_address(text: str) -> bool:
    """Whether a user's password or token stands in an address."""
    return bool(_IN_ADDRESS.search(text)) and not _PLAIN_USER.search(text)
