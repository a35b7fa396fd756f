"""The job directory: the state of a job on the machine where it runs.

Whoever opens it (an agent that starts again, a supervisor that takes a run up, a person) finds there
all that is known. Directories are 0700 and files 0600 whatever the umask; a file that another process
may read appears by rename, whole or not at all; a process is named by pid *and* start time, because
pids come back.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
from typing import Any, Dict, List, Optional, Tuple, Union

Start = str


class JobDir:
    """Files of one job by the names of ``protocol``. Nothing is created until a method is called."""

    def __init__(self, root: Union[str, "os.PathLike[str]"]):
        self.root = os.path.abspath(os.fspath(root))

    def path(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def has(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    def create(self) -> None:
        """Makes the directory (0700); one that is there already is tightened."""
        make_private_dir(self.root)

    def write(self, name: str, data: Union[str, bytes]) -> None:
        write_private(self.path(name), data)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, json.dumps(value, ensure_ascii=False) + "\n")

    def read(self, name: str, limit: int = 1 << 20) -> Optional[str]:
        """The text of a small file, or None when it is not there."""
        try:
            with open(self.path(name), "rb") as file:
                return file.read(limit).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_json(self, name: str, limit: int = 16 << 20) -> Optional[Dict[str, Any]]:
        """The JSON object in a file, or None when it is not there or is none."""
        text = self.read(name, limit)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def read_exit_code(self, name: str) -> Optional[int]:
        """The number in an exit code file, or None when there is none (yet)."""
        try:
            return int((self.read(name, 64) or "").strip())
        except ValueError:
            return None

    def touch(self, name: str) -> None:
        """Makes an empty file where there is none, so that its reader never waits for a name to appear."""
        os.close(self.open_append(name))

    def open_append(self, name: str) -> int:
        """A descriptor that adds to the file's end, one write a line."""
        descriptor = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
        return descriptor

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))


def make_private_dir(path: str) -> None:
    """Makes ``path`` and what is missing above it, all 0700; a ``path`` that was there ends as 0700 too."""
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        make_private_dir(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    os.chmod(path, 0o700)


def write_private(path: str, data: Union[str, bytes]) -> None:
    """Writes under another name in the same directory (0600), fsyncs, renames. Raises OSError."""
    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
    temporary = "%s.%d.tmp" % (path, os.getpid())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class Lock:
    """An flock on a file that also says who holds it; it ends with the process, however that dies."""

    def __init__(self, path: str):
        self._path = path
        self._descriptor: Optional[int] = None

    def take(self) -> bool:
        """Takes the lock if nobody has it. The file keeps its name for ever: no race about deleting it."""
        import fcntl

        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
        holder = json.dumps({"host": hostname(), "pid": os.getpid()}) + "\n"
        os.write(descriptor, holder.encode("ascii", "replace"))
        self._descriptor = descriptor
        return True

    def held(self) -> bool:
        """True while somebody has the lock; the file is not changed. Asking takes the lock for an instant."""
        import fcntl

        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return True
            raise
        finally:
            os.close(descriptor)
        return False

    def holder(self) -> Dict[str, Any]:
        """``{"host", "pid"}`` of the latest holder; empty when the file says nothing."""
        try:
            with open(self._path, "rb") as file:
                value = json.loads(file.read(4096).decode("utf-8", "replace"))
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def hostname() -> str:
    return socket.gethostname()


# --- processes ------------------------------------------------------------------------------------


class Identity:
    """A process that can be told from a later one with the same pid: ``{"pid", "pgid", "start", "host"}``."""

    def __init__(self, pid: int, pgid: int, start: Start, host: str):
        self.pid, self.pgid, self.start, self.host = pid, pgid, start, host

    @classmethod
    def of(cls, pid: int) -> "Identity":
        """Raises ProcessLookupError when there is no such process."""
        found = _look(pid)
        if found is None:
            raise ProcessLookupError(pid)
        return cls(pid, os.getpgid(pid), found[1], hostname())

    @classmethod
    def from_json(cls, value: Any) -> Optional["Identity"]:
        try:
            return cls(int(value["pid"]), int(value["pgid"]), str(value["start"]), str(value["host"]))
        except (TypeError, KeyError, ValueError):
            return None

    def to_json(self) -> Dict[str, Any]:
        return {"pid": self.pid, "pgid": self.pgid, "start": self.start, "host": self.host}

    def is_alive(self) -> bool:
        """True while this very process runs; a zombie is dead, and so is another with the same pid.

        Raises ValueError for a process of another host: nothing can be said about that from here.
        """
        if self.host != hostname():
            raise ValueError("process %d is on %s, this is %s" % (self.pid, self.host, hostname()))
        found = _look(self.pid)
        return found is not None and found[0] not in "ZX" and found[1] == self.start

    def group(self) -> List[int]:
        """The live processes of this process's group, itself included; children outlive their leader.

        A later process cannot have got the number as its group while one of the old group lives; when
        the whole group is gone and the number came back, the new leader's start time tells.
        """
        leader = _look(self.pid)
        if leader is not None and leader[1] != self.start:
            return []
        return _members(self.pgid)

    def signal_group(self, number: int) -> bool:
        """Sends the signal to the whole group; False when nothing of it is left."""
        if not self.group():
            return False
        try:
            os.killpg(self.pgid, number)
        except ProcessLookupError:
            return False
        return True

    def kill_group(self) -> bool:
        return self.signal_group(signal.SIGKILL)


def _look(pid: int) -> Optional[Tuple[str, Start]]:
    """(state letter, start time) of a pid, None when there is no such process.

    The start is in clock ticks since boot, with the boot's id: after a reboot both count anew.
    """
    fields = _stat(pid)
    if fields is not None:
        return fields[0], "%s/%s" % (_boot(), fields[19])
    if os.path.exists("/proc/self/stat"):
        return None
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={"LC_ALL": "C", "PATH": os.environ.get("PATH", "/usr/bin:/bin")},
    )
    words = asked.stdout.decode("ascii", "replace").split()
    return (words[0][0], " ".join(words[1:])) if words else None


def _stat(pid: int) -> Optional[List[str]]:
    """The fields of /proc/<pid>/stat from the state on; the name before them may hold anything."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read(4096).decode("ascii", "replace")
    except (OSError, ValueError):
        return None
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > 19 else None


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _members(pgid: int) -> List[int]:
    if not os.path.exists("/proc/self/stat"):
        try:
            os.killpg(pgid, 0)
        except OSError:
            return []
        return [pgid]
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields is not None and int(fields[2]) == pgid and fields[0] not in "ZX":
                found.append(int(name))
    return found
