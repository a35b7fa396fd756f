"""Private directories of sockets that killed processes have left under /tmp: they answer nobody."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
from contextlib import closing, suppress
from pathlib import Path

_PRIVATE = re.compile(r"p-[0-9a-f]{8}\Z")
#: A younger one may not have its socket yet.
_OLD_S = 3600.0


def sweep(now: float, folder: str = "/tmp") -> None:  # noqa: S108 where sockets' names are short enough
    """Removes those of this account. ``now``: seconds since the epoch, as files have them."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if _PRIVATE.match(entry.name):
                with suppress(OSError):
                    about = entry.stat(follow_symlinks=False)
                    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
                    if ours and now - about.st_mtime > _OLD_S and not _in_use(Path(entry.path)):
                        shutil.rmtree(entry.path)


def _in_use(folder: Path) -> bool:
    return any(_answers(path) for path in folder.iterdir() if path.is_socket())


def _answers(path: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as caller:
        caller.setblocking(False)
        try:
            caller.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:  # busy, mostly
            return True
    return True
