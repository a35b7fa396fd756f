"""docs/openapi.yaml and the routes: requests made from the one are answered by the other as it says."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, settings
from potato_training.runtime.agent_routes import make_app

schemathesis = pytest.importorskip("schemathesis")
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi import checks  # noqa: E402

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docs" / "openapi.yaml"
PAGE = yaml.safe_load(FILE.read_text("utf-8"))
CHECKS = [
    not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_headers_conformance, checks.response_schema_conformance, checks.unsupported_method,
    checks.allow_header_conformance,
]
SCHEMA = schemathesis.openapi.from_path(str(FILE))


def as_bytes(value):
    return value.encode("utf-8", "replace") if isinstance(value, str) else b""


schemathesis.serializer("application/x-ndjson")(lambda context, value: as_bytes(value))


@pytest.fixture
def served(bench, tcp_server):
    bench.add_job([])
    bench.job.limit_bytes = 100
    bench.url = tcp_server(bench.intake)
    return bench


def operations():
    for path, item in PAGE["paths"].items():
        for method in item.keys() & {"get", "put", "post", "delete", "patch"}:
            yield method, path


def test_the_page_has_the_routes_of_the_server_and_no_other():
    rules = make_app(None).url_map.iter_rules()
    real = {(method.lower(), rule.rule.replace("<", "{").replace(">", "}"))
            for rule in rules for method in rule.methods - {"HEAD", "OPTIONS"}}
    assert real == set(operations())


def test_it_is_openapi():
    """Every reference leads somewhere, within the file and to the schemas beside it."""
    schemas = {f"../schema/{p.name}": json.loads(p.read_text("utf-8")) for p in (ROOT / "schema").glob("*.schema.json")}

    def references(value):
        if isinstance(value, dict):
            if "$ref" in value:
                yield value["$ref"]
            value = list(value.values())
        for inner in value if isinstance(value, list) else ():
            yield from references(inner)

    found = set(references(PAGE))
    assert len(found) > 8
    for reference in found:
        file, _, pointer = reference.partition("#")
        target = schemas[file] if file else PAGE
        for word in filter(None, pointer.split("/")):
            target = target[word]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@SCHEMA.parametrize()
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_the_page_tells_of(case, served):
    """Half of the requests are about the job that there is."""
    if len(case.path_parameters.get("run_id", "")) % 2:
        case.path_parameters["run_id"] = "run-1"
        if case.method == "PUT":
            digest = hashlib.sha256(as_bytes(case.body)).digest()
            case.headers["Content-Digest"] = f"sha-256=:{base64.b64encode(digest).decode()}:"
    case.call_and_validate(
        base_url=served.url, headers={"Authorization": f"Bearer {served.token}"}, timeout=60,
        checks=CHECKS,
    )


@pytest.mark.parametrize(("method", "path"), sorted(operations()))
def test_no_token_is_401_as_the_page_tells(served, method, path):
    operation = SCHEMA[path][method.upper()]
    response = operation.Case(path_parameters={"run_id": "run-1"} if "{" in path else {}).call(base_url=served.url)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == ["Bearer"]
    assert response.json() == {"error": "unauthorized"}
