"""Pushing a run's model to the Hugging Face Hub: what is asked, checked, and how it stands.

The upload is a process of its own (``push_job``), so that it goes on when the tab is closed or the server
stopped, and can be ended when nothing moves any more. How it stands is the fact ``push`` of the run.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from ..runtime.places import Places
from ..runtime.store import Run
from ..worker.jobdir import Identity
from ..worker.protocol import SUCCEEDED
from . import artifacts
from .errors import Conflict, Refused
from .study import Study

#: As the Hub's own rules have it: letters, digits, and single marks between them.
_NAME = r"(?=.{1,96}(?:/|\Z))[A-Za-z0-9](?:[A-Za-z0-9_]|[.-](?![.-]|/|\Z))*"
_REPO = re.compile(rf"{_NAME}/{_NAME}\Z")
_KEYS = ("repo_id", "private", "token")
#: Files of these names say what the repository is: the card is ours, and so is the list of large files the Hub's.
_NOT_OURS = ("readme.md", ".gitattributes")
PUSHING, DONE, FAILED = "pushing", "done", "failed"


def push(study: Study, run_id: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Starts an upload of the model files and a card in one commit; what stands in the fact ``push`` now.

    ``asked``: repo_id, private (default true), token (else what this machine is logged in with). Refused naming
    the field, Conflict for a run without model files here, and while one goes on.
    """
    repo, private, token = _checked(asked)
    run = study.run(run_id)
    files = files_of(study.places, run)
    if importlib.util.find_spec("huggingface_hub") is None:
        raise Refused(
            "pushing needs huggingface_hub, which is not installed", 'pip install "potato-training[hub]"', status=501
        )
    with study.store.transaction() as db:  # of two at once one starts
        row = db.execute("SELECT facts FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        facts = json.loads(row["facts"])
        if _as_it_is(facts).get("state") == PUSHING:
            raise Conflict(f"run {run_id} is being pushed already, to {facts['push']['repo_id']}")
        facts["push"] = {"state": PUSHING, "repo_id": repo, "private": private, "at": time.time(), "files": len(files),
                         "done": 0, "total": 0, "by": _start(study.places, run_id, repo, private, token)}
        db.execute("UPDATE runs SET facts = ? WHERE run_id = ?", (json.dumps(facts), run_id))
    return {"run_id": run_id, **_told(facts["push"])}


def standing(study: Study, run: Run) -> dict[str, Any]:
    """How the last push of a run stands: {} when there was none; one whose process is gone has failed."""
    told = _as_it_is(run.facts)
    if told.get("state") == FAILED and run.facts["push"]["state"] == PUSHING:
        # it may have ended well between the record's reading and the look at its process
        told = _as_it_is((study.store.get(run.run_id) or run).facts)
    return told


def _as_it_is(facts: Mapping[str, Any]) -> dict[str, Any]:
    push = facts.get("push")
    if not isinstance(push, Mapping):
        return {}
    if push.get("state") == PUSHING and not _lives(push.get("by")):
        return {**_told(push), "state": FAILED, "error": "the upload was interrupted", "hint": "push again"}
    return _told(push)


def _told(push: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in push.items() if name != "by"}


def _lives(by: Any) -> bool:
    identity = Identity.from_json(by)
    try:
        return identity is not None and identity.is_alive()
    except ValueError:
        return True  # on another machine: it says itself when it ends


def _start(places: Places, run_id: str, repo: str, private: bool, token: str | None) -> dict[str, Any]:
    """The identity of the new process. It has the token on its stdin."""
    process = subprocess.Popen(
        [sys.executable, "-m", "potato_training.server.push_job", str(places.task_dir), run_id],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        cwd="/",  # -m looks for modules where it stands
    )
    by = Identity.of(process.pid).to_json()
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps({"repo_id": repo, "private": private, "token": token}).encode())
        process.stdin.close()
    except OSError as error:
        raise Refused(f"the upload cannot be started: {error.strerror or error}", status=503) from None
    return by


def _checked(asked: Mapping[str, Any]) -> tuple[str, bool, str | None]:
    for key in asked:
        if key not in _KEYS:
            raise Refused(f"unknown field {key[:100]!r}", "known are: " + ", ".join(_KEYS), field=key[:100])
    repo, private, token = asked.get("repo_id"), asked.get("private", True), asked.get("token")
    if not isinstance(repo, str) or not _REPO.match(repo) or repo.endswith(".git"):
        raise Refused("repo_id must be like user/name",
                      "letters, digits and `_`, with single `.` and `-` between them", field="repo_id")
    if not isinstance(private, bool):
        raise Refused("private must be true or false", field="private")
    if token is not None and (not isinstance(token, str) or not re.match(r"[\x21-\x7e]{1,500}\Z", token)):
        raise Refused("token must be a text without spaces", field="token")
    return repo, private, token


def files_of(places: Places, run: Run) -> dict[str, str]:
    """{name below artifacts/: path in the repository}; a single schema's model lies at the top. Raises Conflict."""
    names = [file.name for file in artifacts.listed(places.run_dir(run.run_id))]
    if run.state != SUCCEEDED or not names:
        where = (run.facts.get("report") or {}).get("artifact_uri")
        if run.state == SUCCEEDED and where:
            raise Conflict(f"the model files of this run are not on this server: {where}")
        raise Conflict(f"run {run.run_id} has no model files here ({run.state})")
    folders = {name.partition("/")[0] for name in names}
    alone = len(folders) == 1 and all("/" in name for name in names)
    paths = {name: name.partition("/")[2] if alone else name for name in names}
    return {name: path for name, path in paths.items()
            if path.lower() not in _NOT_OURS and not path.startswith(".git/")
            and path.isprintable() and "\N{REPLACEMENT CHARACTER}" not in path}
