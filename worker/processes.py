"""This process's family: who descends from it, how much memory they hold together, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Dict, List, Mapping, Optional, Set, Tuple


def family(pid: Optional[int] = None) -> Set[int]:
    """The pids that belong to the worker: itself, its descendants, and its process group when it leads one.

    A worker started by hand without a group of its own shares its caller's group: those are not counted.
    """
    pid = pid or os.getpid()
    leads = os.getpgid(pid) == pid
    children: Dict[int, List[int]] = {}
    members: Set[int] = set()
    for child, parent, group in _table():
        children.setdefault(parent, []).append(child)
        if leads and group == pid:
            members.add(child)
    found, todo = members | {pid}, [pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found or child in members:
                members.discard(child)
                found.add(child)
                todo.append(child)
    return found


def _table() -> List[Tuple[int, int, int]]:
    """(pid, parent, process group) of every process that can be seen."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:                                     # macOS
        return _table_of_ps()
    rows = []
    for name in names:
        with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/%s/stat" % name, "rb") as f:
            rest = f.read().rpartition(b")")[2].split()  # the name in parentheses may hold anything
            rows.append((int(name), int(rest[1]), int(rest[2])))
    return rows


def _table_of_ps() -> List[Tuple[int, int, int]]:
    output = subprocess.run(["ps", "-axo", "pid=,ppid=,pgid="], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            timeout=10, check=False).stdout
    lines = [line.split() for line in output.splitlines()]
    return [(int(line[0]), int(line[1]), int(line[2])) for line in lines if len(line) == 3]


def resident_mb() -> float:
    """Resident memory of the family in MiB, as a sum: pages that two of them share count twice."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total = 0
        for pid in family():
            with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/%d/statm" % pid, "rb") as f:
                total += int(f.read().split()[1]) * page
        if total:
            return total / 1048576.0
    except (OSError, ValueError):
        pass
    pids = ",".join(map(str, sorted(family())))
    output = subprocess.run(["ps", "-o", "rss=", "-p", pids], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            timeout=10, check=False).stdout
    return sum(int(word) for word in output.split() if word.isdigit()) / 1024.0


def kill_descendants() -> None:
    """SIGKILL for everything that descends from this process, children that appear meanwhile included."""
    me = os.getpid()
    for _ in range(3):
        parents = {child: parent for child, parent, _ in _table()}
        found = [pid for pid in parents if _descends(pid, me, parents)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in found:
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)


def _descends(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    for _ in range(100):
        pid = parents.get(pid, 0)
        if pid <= 1:
            return False
        if pid == ancestor:
            return True
    return False
