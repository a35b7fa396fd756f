"""Commands that are not ours go to the Potato annotation server, as a program of its own."""

from __future__ import annotations

import os
import sys

from ..schema.errors import UsageError

#: Calls another distribution's console script without importing anything of it here.
_CALL = (
    "import importlib, sys; sys.argv[0] = 'potato'; "
    "sys.exit(getattr(importlib.import_module(sys.argv.pop(1)), sys.argv.pop(1))())"
)


def to_potato(arguments: list[str]) -> int:
    """Replaces this process by Potato's own command, arguments untouched. UserError when it is not installed."""
    from importlib import metadata

    name = arguments[0]
    try:
        points = metadata.distribution("potato-annotation").entry_points
    except metadata.PackageNotFoundError:
        raise UsageError(
            f"there is no command {name!r} here, and the Potato annotation server is not installed beside this",
            "potato --help lists the commands; pip install potato-annotation brings the server's",
        ) from None
    for point in points:
        if point.group == "console_scripts" and point.name == "potato":
            module, _, attribute = point.value.partition(":")
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, "-c", _CALL, module, attribute, *arguments])  # noqa: S606
    raise UsageError(f"potato-annotation is installed but brings no command of its own for {name!r}")

