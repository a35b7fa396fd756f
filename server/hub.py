"""Pushing a run's model to the Hugging Face Hub, with a card that says what it is and how to load it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from ..runtime import runlog
from ..runtime.store import Run
from ..worker.protocol import SUCCEEDED
from . import artifacts
from .card import card
from .errors import Conflict, Refused
from .study import Study

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}\Z")
_KEYS = ("repo_id", "private", "token")


def push(study: Study, run_id: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Uploads the model files and a card in one commit: ``{"run_id", "repo_id", "url", "commit", "files"}``.

    ``asked``: repo_id, private (default true), token (else what this machine is logged in with). Refused naming
    the field, Conflict for a run without model files here.
    """
    repo, private, token = _checked(asked)
    run = study.run(run_id)
    files = _files(study, run)
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError:
        raise Refused(
            "pushing needs huggingface_hub, which is not installed", 'pip install "potato-training[hub]"', status=501
        ) from None
    run_dir = study.run_dir(run)
    added = [CommitOperationAdd("README.md", card(run, repo, list(files.values())).encode("utf-8", "replace"))]
    for name, path in files.items():
        with artifacts.opened(run_dir, name):  # no link, and still there
            added.append(CommitOperationAdd(path, str(run_dir / "artifacts" / name)))
    try:
        api = HfApi(token=token, library_name="potato-training")
        url = str(api.create_repo(repo, private=private, exist_ok=True, repo_type="model"))
        commit = api.create_commit(repo, added, commit_message=f"potato-training run {run.run_id}")
    except Exception as error:  # the library's own, httpx's, and those of the file transfer beneath
        raise _explained(error, repo, token) from None
    url = url if re.match(r"https?://", url) else ""  # it becomes a link
    told = {"repo_id": repo, "url": url, "commit": str(commit.oid), "at": time.time()}
    study.store.note(run_id, pushed=told)
    runlog.log(run_dir, f"pushed {len(files)} model files to {repo}, commit {commit.oid}")
    return {"run_id": run_id, **told, "files": len(files)}


def _checked(asked: Mapping[str, Any]) -> tuple[str, bool, str | None]:
    for key in asked:
        if key not in _KEYS:
            raise Refused(f"unknown field {key[:100]!r}", "known are: " + ", ".join(_KEYS), field=key[:100])
    repo, private, token = asked.get("repo_id"), asked.get("private", True), asked.get("token")
    if not isinstance(repo, str) or not _REPO.match(repo):
        raise Refused("repo_id must be like user/name", "letters, digits, `.`, `_` and `-`", field="repo_id")
    if not isinstance(private, bool):
        raise Refused("private must be true or false", field="private")
    if token is not None and (not isinstance(token, str) or not re.match(r"[\x21-\x7e]{1,500}\Z", token)):
        raise Refused("token must be a text without spaces", field="token")
    return repo, private, token


def _files(study: Study, run: Run) -> dict[str, str]:
    """{name below artifacts/: path in the repository}; a single schema's model lies at the top."""
    names = [file.name for file in artifacts.listed(study.run_dir(run))]
    if run.state != SUCCEEDED or not names:
        where = (run.facts.get("report") or {}).get("artifact_uri")
        if run.state == SUCCEEDED and where:
            raise Conflict(f"the model files of this run are not on this server: {where}")
        raise Conflict(f"run {run.run_id} has no model files here ({run.state})")
    folders = {name.partition("/")[0] for name in names}
    if len(folders) == 1 and all("/" in name for name in names):
        return {name: name.partition("/")[2] for name in names}
    return {name: name for name in names}


def _explained(error: Exception, repo: str, token: str | None) -> Refused:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return Refused("the Hub does not accept the token", "a token with write access: huggingface.co/settings/tokens",
                       field="token")
    if status in (403, 404):
        return Refused(f"the Hub does not let this token write to {repo}", field="repo_id")
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return Refused(f"the Hub could not be reached: {text.replace(token, '***') if token else text}", status=502)
