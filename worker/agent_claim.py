"""Getting a job: from the job directory when it is there, else from the server, once and for good."""

from __future__ import annotations

import os
import platform
import re
from typing import Any, Callable, Dict

from . import protocol
from .agent_env import own_version
from .agent_link import Gone, Link
from .agent_message import BadJob, Job
from .agent_report import result_body
from .http_client import Answer
from .jobdir import JobDir, hostname

Insist = Callable[[Callable[[], Answer]], Answer]


class NoJob(Exception):
    """There is nothing to do for this agent; the sentence says why."""


def job_of(jobdir: JobDir, link: Link, insist: Insist, rest: Callable[[float], None]) -> Job:
    """The job of this directory. Raises NoJob."""
    known = jobdir.read_json(protocol.JOB_FILE)
    if known is None:
        known = _ask(jobdir, link, insist, rest)
        jobdir.write_json(protocol.JOB_FILE, known)
    try:
        return Job(known)
    except BadJob as error:
        _refuse(jobdir, link, insist, known, str(error))
        raise NoJob(str(error)) from None


def claim_body(agent_id: str) -> Dict[str, Any]:
    return {
        "agent_id": agent_id, "hostname": hostname(), "agent_version": own_version(),
        "python": platform.python_version(), "gpus": [],
    }


def _ask(jobdir: JobDir, link: Link, insist: Insist, rest: Callable[[float], None]) -> Dict[str, Any]:
    body = claim_body("%s:%s" % (hostname(), os.path.basename(jobdir.root)))
    while True:
        try:
            answer = insist(lambda: link.call(lambda client: client.post(protocol.API_PREFIX + "/claim", body)))
        except Gone as error:
            raise NoJob("the server has no job here: %s" % error) from None
        if answer.status == 200:
            return answer.json
        if answer.status != 204:
            raise NoJob("the server refused the claim: %s" % answer.json.get("error", answer.status))
        rest(1.0)


def _refuse(jobdir: JobDir, link: Link, insist: Insist, message: Dict[str, Any], why: str) -> None:
    """Says on the other side as well that this job cannot be done here."""
    run_id = message.get("run_id")
    if isinstance(run_id, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,100}", run_id):
        path = "%s/jobs/%s/result" % (protocol.API_PREFIX, run_id)
        body = result_body(jobdir, None, "%s: %s" % (protocol.REASON_PROTOCOL, why), {})
        try:
            insist(lambda: link.call(lambda client: client.post(path, body)))
        except Gone:
            return
