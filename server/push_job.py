"""python -m potato_training.server.push_job TASK_DIR RUN_ID

One upload to the Hugging Face Hub, with ``{"repo_id", "private", "token"}`` on stdin. How it goes stands in the
run's record; it ends by itself when nothing moved for a while.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ..runtime import runlog
from ..runtime.bounds import bounds
from ..runtime.places import Places
from ..runtime.store import Run, Store
from . import artifacts
from .card import card
from .errors import Refused
from .hub import DONE, FAILED, files_of

_NOTE_EVERY_S = 1.0
#: More files are read by their names, and what is done of them is not told: descriptors are few.
_MOST_OPEN = 200


class Told:
    """What the record says of this push. ``moved`` is called for every piece that is read of a file."""

    def __init__(self, store: Store, run: Run, total: int):
        self._store, self._run_id, self._total = store, run.run_id, total
        self._done, self._noted = 0, 0.0
        self._last = time.monotonic()
        self._guard = threading.Lock()
        self.ended = False

    def moved(self, count: int = 0) -> None:
        with self._guard:
            self._done += count
            now = self._last = time.monotonic()
            if self.ended or now - self._noted < _NOTE_EVERY_S:
                return
            self._noted = now
            done = min(self._done, self._total)
        self._store.note(self._run_id, push={"done": done, "total": self._total})

    def end(self, state: str, **more: Any) -> None:
        with self._guard:
            if self.ended:
                return
            self.ended = True
        self._store.note(self._run_id, push={"state": state, "ended": time.time(), **more})

    def watch(self, seconds: float) -> None:
        """Ends this process when nothing moves for so long: some calls of the library wait for ever."""
        while time.monotonic() - self._last < seconds:
            time.sleep(min(1.0, seconds / 4))
        self.end(FAILED, error=f"the Hub took nothing for {seconds:g} s", hint="push again")
        os._exit(1)


class Counted(io.BufferedReader):
    """A file that tells how much of it is read."""

    def __init__(self, file: Any, told: Told):
        super().__init__(file.detach(), 1 << 20)
        self._told = told

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._told.moved(len(data))
        return data


def main(arguments: list[str]) -> int:
    task_dir, run_id = arguments
    asked = json.loads(sys.stdin.buffer.read())
    places = Places(Path(task_dir))
    store = Store(places.store)
    run = store.get(run_id)
    if run is None:
        return 1
    for _ in range(600):  # who started us is about to write down that it has
        if ((store.get(run_id) or run).facts.get("push") or {}).get("by", {}).get("pid") == os.getpid():
            break
        time.sleep(0.05)
    else:
        return 1
    repo, token = asked["repo_id"], asked["token"]
    try:
        files = files_of(places, run)
        run_dir = places.run_dir(run_id)
        sizes = {file.name: file.size for file in artifacts.listed(run_dir)}
        # each file is read twice, for its digest and to be sent
        told = Told(store, run, 2 * sum(sizes[name] for name in files))
    except Refused as error:
        store.note(run_id, push={"state": FAILED, "error": error.message, "hint": error.hint})
        return 1
    threading.Thread(target=told.watch, args=(bounds().copy_stall_s,), daemon=True).start()
    try:
        commit, url = _upload(run, run_dir, files, asked, told)
    except Exception as error:  # the library's own, httpx's, and those of the file transfer beneath
        why = error if isinstance(error, Refused) else _explained(error, repo, token)
        told.end(FAILED, error=why.message, hint=why.hint, field=why.field)
        runlog.log(run_dir, f"pushing to {repo} failed: {why.message}")
        return 1
    runlog.log(run_dir, f"pushed {len(files)} model files to {repo}, commit {commit}")
    told.end(DONE, url=url, commit=commit)
    return 0


def _upload(run: Run, run_dir: Path, files: dict[str, str], asked: dict[str, Any], told: Told) -> tuple[str, str]:
    """(commit, address of the repository)."""
    from huggingface_hub import CommitOperationAdd, HfApi

    repo = asked["repo_id"]
    added = [CommitOperationAdd("README.md", card(run, repo, list(files.values())).encode("utf-8", "replace"))]
    there = {file.name: file.path for file in artifacts.listed(run_dir)}
    for name, path in files.items():
        file = artifacts.opened(run_dir, name)  # no link, and still there
        if len(files) > _MOST_OPEN:
            file.close()
        added.append(CommitOperationAdd(path, str(there[name]) if file.closed else Counted(file, told)))
    told.moved()
    api = HfApi(token=asked["token"], library_name="potato-training")
    url = str(api.create_repo(repo, private=asked["private"], exist_ok=True, repo_type="model"))
    told.moved()
    commit = api.create_commit(repo, added, commit_message=f"potato-training run {run.run_id}")
    return str(commit.oid), url if re.match(r"https?://", url) else ""  # it becomes a link


def _explained(error: Exception, repo: str, token: str | None) -> Refused:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return Refused("the Hub does not accept the token", "a token with write access: huggingface.co/settings/tokens",
                       field="token")
    if status in (403, 404):
        return Refused(f"the Hub does not let this token write to {repo}", field="repo_id")
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if token and len(token) > 7:
        text = text.replace(token, "***")
    return Refused(f"the Hub could not be reached: {text}", "push again")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
