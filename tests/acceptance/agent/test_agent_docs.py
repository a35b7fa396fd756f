"""The examples of docs/agent-protocol.md, typed in as they stand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "agent-protocol.md").read_text("utf-8")
SCHEMAS = {name: json.loads((ROOT / "schema" / f"{name}.schema.json").read_text("utf-8")) for name in ("agent", "job")}


def commands():
    """The curl commands of the page, continued lines joined."""
    lines = re.findall(r"^    (curl (?:.*\\\n)*.*)", PAGE, re.MULTILINE)
    return [line.replace("\\\n", " ") for line in lines]


def body_of(command):
    return json.loads(re.search(r"-d '(.*?)'", command)[1])


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("openssl")), reason="needs curl and openssl")
def test_every_curl_example_does_what_the_page_says(bench, tcp_server, tmp_path):
    job = bench.add_job([], files={"manifest.json": b"{}\n" * 100_000})
    job.bundle.write_bytes(job.bundle.read_bytes() + b"x" * 200_000)  # long enough for the range of the example
    here = tmp_path / "here"
    here.mkdir()
    (here / "predictions.jsonl").write_bytes(b'{"instance_id":"1"}\n')
    etag = '"{}"'.format(job.message["bundle"]["etag"])
    environment = {
        "PATH": "/usr/bin:/bin", "SERVER": tcp_server(bench.intake), "TOKEN": bench.token, "RUN": "run-1", "ETAG": etag,
    }
    codes = []
    for command in commands():
        done = subprocess.run(
            ["bash", "-c", f"{command} -o answer -w '%{{http_code}}'"], env=environment, cwd=here,
            capture_output=True, text=True, timeout=60,
        )
        codes.append(done.stdout)
    assert codes == ["200", "200", "206", "200", "200", "200"]
    assert (here / "bundle.tar.gz").read_bytes() == job.bundle.read_bytes()
    assert job.claims[0]["agent_id"] == "lab-1"
    assert [e["state"] for e in job.worker_events] == ["running"]
    assert job.predictions == b'{"instance_id":"1"}\n'
    assert job.result["artifact_uri"] == "file://lab-1.example.org/data/model"


def test_the_examples_are_good_messages():
    found = {name: body_of(command) for command in commands() for name in ("claim", "events", "result")
             if re.search(rf"/{name} ", command)}
    assert found.keys() == {"claim", "events", "result"}
    for name, body in found.items():
        schema = {"$ref": f"#/$defs/{name}", "$defs": SCHEMAS["agent"]["$defs"]}
        jsonschema.validate(body, schema, jsonschema.Draft202012Validator)


def test_the_job_of_the_server_is_a_good_job(bench):
    bench.add_job([])
    jsonschema.validate(bench.job.message, SCHEMAS["job"], jsonschema.Draft202012Validator)


def test_the_page_names_every_file_and_bound(bench):
    from potato_training.worker import protocol

    for name in ("JOB", "ATTACH", "WORKER", "EVENTS", "AGENT_EVENTS", "CONTROL", "EXIT_CODE", "PREDICTIONS", "STOP"):
        assert f"`{getattr(protocol, name + '_FILE')}`" in PAGE
    for number in ("256 KiB", "8 MiB, 10,000 events", "64 KiB of JSON", "32 KiB", "60 s"):
        assert f"| {number}" in PAGE


def test_the_page_about_the_agent_has_its_flags_and_a_unit_that_starts_it():
    import argparse
    import shlex

    from potato_training.worker.agent_poll import add_arguments

    page = (ROOT / "docs" / "agent.md").read_text("utf-8")
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    flags = {action.option_strings[-1]: action for action in parser._actions if not action.required}
    told = set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE))
    assert told == flags.keys() - {"--help"}
    lines = re.findall(r"potato training agent (--server [^'\n]*)", page.replace("\\\n", " "))
    named = [parser.parse_args(shlex.split(line)).backend for line in lines]
    assert named == [*["lab-workstation"] * 3, "lab-cluster"], "by hand, unit, tmux, login node"


def test_the_example_of_a_slurm_config_is_one(tmp_path):
    from potato_training.schema.slurm_config import read_slurm_config

    (text,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "agent.md").read_text("utf-8"), re.DOTALL)
    path = tmp_path / "slurm.json"
    path.write_text(text)
    found = read_slurm_config(str(path))
    assert found.keys == json.loads(text) and found.notes == []
