"""python -I .../tidy.py STORE HASH

Run once by whoever brings the code of that hash to a host, with nobody waiting: keeps the newest three copies in the
store, and compiles the new one for all runs to come.

Jobs copy from the store at any moment. While they do, names may appear and none may vanish: a file is compiled
elsewhere and renamed into its place. An old copy loses its own name before it loses its files, so that whoever is
at it notices.
"""

import contextlib
import os
import py_compile
import re
import shutil
import sys
import time

#: So many copies stay.
NEWEST = 3
#: What was begun so long ago is not being made any more.
CUT_OFF_S = 86400


def main(store: str, name: str) -> None:
    os.nice(10)
    work = os.path.join(store, ".%s.%d.tidy" % (name, os.getpid()))
    try:
        prune(store, work)
        os.mkdir(work)
        compile_all(os.path.join(store, name), work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def prune(store: str, work: str) -> None:
    """Removes old copies by way of names that begin like ``work``, and what broke off long ago."""
    entries = {}
    for entry in os.listdir(store):
        with contextlib.suppress(OSError):  # another server's copy, which has just got its name
            entries[entry] = used(store, entry)
    whole = sorted((entry for entry in entries if re.match("[0-9a-f]+$", entry)), key=lambda entry: entries[entry])
    for old in whole[:-NEWEST]:
        with contextlib.suppress(OSError):
            if used(store, old) == entries[old]:
                gone = "%s.%s" % (work, old)
                os.rename(os.path.join(store, old), gone)
                shutil.rmtree(gone, ignore_errors=True)
    for entry, when in entries.items():
        if entry.startswith(".") and when < time.time() - CUT_OFF_S:
            shutil.rmtree(os.path.join(store, entry), ignore_errors=True)


def used(store: str, entry: str) -> float:
    """When a copy was made, or taken for a job, last."""
    return os.stat(os.path.join(store, entry)).st_mtime


def compile_all(code: str, work: str) -> None:
    for folder, _, files in os.walk(code):
        for file in sorted(files):
            if file.endswith(".py"):
                made = os.path.join(work, "%s.%s.pyc" % (file[:-3], sys.implementation.cache_tag))
                py_compile.compile(os.path.join(folder, file), made, doraise=True)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(os.path.join(folder, "__pycache__"))  # alone: a copy that was pruned meanwhile stays gone
                os.rename(made, os.path.join(folder, "__pycache__", os.path.basename(made)))


if __name__ == "__main__":
    main(*sys.argv[1:])
