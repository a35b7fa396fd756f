"""What an agent says of itself: on its stderr, which is agent.log as long as whoever started it listens.

An agent outlives the login that started it. From the end of its stdin on its words go to a file in the job
directory, which is read when the job is released.
"""

from __future__ import annotations

import os
import stat

from . import protocol
from .jobdir import JobDir

#: The older half is dropped beyond so many bytes.
MOST = 256 * 1024

_kept = False


def say(text: str) -> None:
    """A line for agent.log."""
    try:
        os.write(2, ("agent: %s\n" % text).encode("utf-8", "replace"))
        if _kept and os.fstat(2).st_size > MOST:
            _drop_the_older_half()
    except OSError:
        return


def keep(jobdir: JobDir) -> None:
    """Points stderr at the job directory, unless it is a file already: that has no end."""
    global _kept
    try:
        if stat.S_ISREG(os.fstat(2).st_mode):
            return
    except OSError:
        pass  # it is closed
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(jobdir.path(protocol.AGENT_STDERR_FILE), flags, 0o600)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        _kept = True
    except OSError:
        return  # a full disk: the agent goes on without a voice


def _drop_the_older_half() -> None:
    size = os.fstat(2).st_size
    text = os.pread(2, MOST // 2, size - MOST // 2)
    os.ftruncate(2, 0)
    os.write(2, b"agent: [older lines are dropped]\n" + text.partition(b"\n")[2])
