"""An agent in one page, with the standard library only (its tarfile must have filters); see README.md beside it.

    TOKEN_FILE=token python agent.py https://annotate.example.org lab-1 "python train.py"
"""
import base64
import gzip
import hashlib
import io
import json
import os
import shlex
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path

SERVER, AGENT_ID, COMMAND = sys.argv[1:4]
TOKEN = Path(os.environ.pop("TOKEN_FILE")).read_text().strip()


class Over(Exception):
    """The job is over on the server, or nobody has answered for too long."""


def ask(method, path, body=None, headers=(), patience=300):
    """(status, headers, body). What is no answer of the server's own is asked again, for so many seconds."""
    until, pause = time.monotonic() + patience, 0.2
    body = json.dumps(body).encode() if isinstance(body, dict) else body
    headers = {"Authorization": "Bearer " + TOKEN, **dict(headers)}
    while time.monotonic() < until:
        request = urllib.request.Request(SERVER + "/api/training/v1" + path, body, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:  # noqa: S310
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            text = error.read()
            if error.code == 401:
                sys.exit("the server does not take this token")
            if error.code in (404, 410) and text.startswith(b"{"):
                raise Over from None
            if error.code < 500 and (text.startswith(b"{") or error.code == 413):
                return error.code, error.headers, text
        except (OSError, ValueError, urllib.error.URLError):
            pass  # no connection, or one that broke off
        time.sleep(pause)
        pause = min(5, pause * 2)
    raise Over


def fetch(job, folder):
    """The bundle, unpacked. ValueError or tarfile's own when it is not what it should be."""
    plain = gzip.decompress(ask("GET", f"/jobs/{job['run_id']}/bundle")[2])
    if hashlib.sha256(plain).hexdigest() != job["bundle"]["sha256"]:
        raise ValueError("the bundle is not what the job says")
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        archive.extractall(folder / "bundle", filter="data")  # nothing outside the folder, no devices


def work(job, folder):
    """Runs the command until it ends or the server wants it to; its exit code, and the reason to report."""
    (folder / "spec.json").write_text(json.dumps({**job["spec"], "bundle_dir": "bundle", "workdir": "."}))
    (folder / "control").write_text("run\n")
    events, sent, reason, until = folder / "events.jsonl", 0, "finished", float("inf")
    with events.open("wb") as out, (folder / "stderr.log").open("wb") as err:
        worker = subprocess.Popen(shlex.split(COMMAND), cwd=folder, stdin=subprocess.PIPE, stdout=out, stderr=err)
    try:
        while True:
            ended = worker.poll() is not None  # asked first: what is in the file then is all there will be
            lines = [json.loads(line) for line in events.read_bytes().split(b"\n")[:-1]]
            batch = {"stream": "worker", "seq": sent, "events": lines[sent:sent + 1000]}  # empty: the heartbeat
            answer = json.loads(ask("POST", f"/jobs/{job['run_id']}/events", batch, patience=job["give_up_s"])[2])
            sent = answer.get("next_seq", sent)  # a 409 says it too
            if ended and sent >= len(lines):
                return worker.returncode, reason
            for wish, word in (("cancel", "stop"), ("stop_and_keep", "keep")):
                if answer.get(wish) and reason == "finished":
                    (folder / "control.new").write_text(word + "\n")
                    (folder / "control.new").replace(folder / "control")
                    if wish == "cancel":
                        reason, until = "cancelled", time.monotonic() + job["grace_seconds"]
            if time.monotonic() > until:
                worker.kill()
            if not ended and sent >= len(lines):
                time.sleep(min(1, job["heartbeat_s"]))
    finally:  # also when it is over on the server, and after Ctrl-C
        worker.kill()
        worker.wait()


def upload(job, rows):
    digest = base64.b64encode(hashlib.sha256(rows).digest()).decode()
    headers = {"Content-Digest": f"sha-256=:{digest}:", "Content-Type": "application/x-ndjson"}
    status = ask("PUT", f"/jobs/{job['run_id']}/predictions", rows, headers)[0]
    return {200: "finished", 413: "predictions-too-large"}.get(status, "predictions-refused")


while True:
    me = {"agent_id": AGENT_ID, "hostname": socket.gethostname(), "python": sys.version.split()[0]}
    status, headers, text = ask("POST", "/claim", me, patience=float("inf"))
    if status != 200:
        time.sleep(float(headers.get("Retry-After", 10)))
        continue
    job, code, reason = json.loads(text), None, "bundle"
    folder = Path("jobs", Path(job["run_id"]).name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        fetch(job, folder)
        code, reason = work(job, folder)
        if reason == "finished" and (folder / "predictions.jsonl").exists():
            reason = upload(job, (folder / "predictions.jsonl").read_bytes())
    except Over:
        reason = "gone"
    except (ValueError, OSError, EOFError, tarfile.TarError) as error:
        print(error, file=sys.stderr)
    try:
        code = 128 - code if code is not None and code < 0 else code  # 128 + n when signal n ended it
        ask("POST", f"/jobs/{job['run_id']}/result", {"exit_code": code, "reason": reason})
    except Over:
        pass
    print(f"job {job['run_id']}: {reason}", flush=True)
