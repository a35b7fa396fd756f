"""Whatever the bytes: findings, never a traceback, a hang or a gigabyte."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from potato_training.schema.check import Report, acknowledged, check_root
from potato_training.schema.config import config_of
from potato_training.schema.findings import ERROR
from potato_training.schema.nodes import MAPPING, SCALAR, plain_value
from potato_training.schema.reading import Unreadable, parse
from potato_training.schema.report import as_github, as_json, as_text
from potato_training.schema.rules import BUILTIN_NAMES
from potato_training.schema.scalars import potato_reading

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"
REAL = [p.read_text("utf-8") for p in sorted((CONFIGS / "good").glob("*.yaml"))]

#: What breaks YAML, and what breaks readers of configs.
TOKENS = [
    ": ", "- ", "? ", "[", "]", "{", "}", ",", "&a ", "*a", "<<: *a\n", "!!str ", "!x ", "!!python/name:os ", "|\n",
    ">\n", "'", '"', "#", "%YAML 1.1\n", "---\n", "...\n", "\t", "\r\n", "\n", "  ", "~", "null", "yes", "010", "1e999",
    ".nan", "12:00:00", "\\x00", "\x85", "\u2028", "\ufeff", "é", "😀", "@", "`", "model_training:\n", "  backends:\n",
    "    x: {type: slurm}\n", "type: ssh\n", "host: -o\n", "time: 99-99\n", "gpus: [0, 0]\n",
    "validation: {acknowledge: [model_training.backends.x]}\n", "a" * 300,
]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.sampled_from(TOKENS)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=12), inner, max_size=5),
    max_leaves=25)


def checked(data: bytes) -> Report:
    """A report on the bytes, by the same steps as a file's."""
    report = Report("config.yaml")
    try:
        report.root, report.findings = parse(data)
    except Unreadable as unreadable:
        report.findings = [unreadable.finding]
        return report
    check_root(report, BUILTIN_NAMES)
    return acknowledged(report)


def holds(data: bytes) -> None:
    report = checked(data)
    for finding in report.findings + report.acknowledged:
        assert finding.line >= 1
        assert finding.column >= 1
        assert finding.message
    for line in as_text(report, strict=True).split("\n"):
        assert line.isprintable()
    assert len(as_text(report, strict=True).split("\n")) == len(report.findings) + len(report.acknowledged) + 1
    assert as_json(report, strict=True)["ok"] == (not report.fails(strict=True))
    assert len(as_github(report, strict=False).split("\n")) == len(report.findings) + 1
    assert checked(data).findings == report.findings
    if not report.of(ERROR):
        config = config_of(report)
        assert config.task_dir.is_absolute()
        assert "local" in config.backends


@given(documents)
def test_any_document(document):
    holds(yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"))


@given(documents, st.sampled_from(["model_training", "validation", "annotation_schemes", "data_files", "task_dir"]))
def test_any_document_under_a_key_of_ours(document, key):
    holds(yaml.safe_dump({key: document}, allow_unicode=True).encode("utf-8", "surrogatepass"))


@given(st.lists(st.sampled_from(TOKENS), max_size=40))
def test_any_row_of_tokens(tokens):
    holds("".join(tokens).encode())


@given(st.binary(max_size=300))
def test_any_bytes(data):
    holds(data)


@given(st.data())
def test_mutated_real_configs(data):
    text = data.draw(st.sampled_from(REAL))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        to = min(len(text), at + data.draw(st.integers(0, 12)))
        text = text[:at] + data.draw(st.sampled_from(TOKENS) | st.text(max_size=3)) + text[to:]
    holds(text.encode("utf-8", "surrogatepass"))


@given(st.data())
def test_real_configs_with_lines_moved(data):
    lines = data.draw(st.sampled_from(REAL)).splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 4))):
        line = lines.pop(data.draw(st.integers(0, len(lines) - 1)))
        if data.draw(st.booleans()):
            lines.insert(data.draw(st.integers(0, len(lines))), " " * data.draw(st.integers(0, 6)) + line)
        lines = lines or ["\n"]
    holds("".join(lines).encode())


def texts(node):
    """The node as PyYAML's BaseLoader would build it: every scalar its text."""
    if node.kind == SCALAR:
        return node.value
    if node.kind == MAPPING:
        return {key: texts(pair[1]) for key, pair in node.value.items()}
    return [texts(child) for child in node.value]


@given(st.dictionaries(st.text(max_size=12), documents, min_size=1, max_size=5), st.booleans())
def test_documents_are_read_as_pyyaml_composes_them(document, flow):
    text = yaml.safe_dump(document, allow_unicode=True, default_flow_style=flow)
    root, findings = parse(text.encode("utf-8", "surrogatepass"))
    assert not findings
    assert texts(root) == yaml.load(text, Loader=yaml.BaseLoader)
    plain_value(root)


@given(st.text(alphabet="0123456789.:+-_eExXbotTnNuUlLfFaAyYsSrR~=<zZ ", max_size=12))
def test_potatos_reading_is_that_of_pyyamls_resolver(text):
    tag = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False))
    kinds = {"str": "", "bool": "a boolean", "int": "a number", "float": "a number", "null": "nothing (null)",
             "timestamp": "a date", "value": "a special sign", "merge": "a special sign"}
    assert potato_reading(text).replace(" in base 60", "") == kinds[tag.rpartition(":")[2]]


HOSTILE = {
    "alias bomb": b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 10)) for c in range(98, 118)),
    "merge bomb": b"a: &a {%s}\n" % b",".join(b"k%d: 1" % i for i in range(5000))
                  + b"b: {<<: [%s]}\n" % b",".join([b"*a"] * 5000),
    "many values": b"a: [" + b"x," * 3_900_000 + b"]",
    "many keys": b"".join(b"k%d: v\n" % i for i in range(500_000)),
    "many wrong keys": b"model_training:\n" + b"".join(b"  k%d: v\n" % i for i in range(100_000)),
    "many wrong entries": b"model_training:\n  backends:\n" + b"".join(
        b"    k%d: {type: ssh, hots: x}\n" % i for i in range(30_000)),
    "many labels": b"annotation_schemes:\n- labels: [" + b"yes," * 100_000 + b"]\n",
    "many duplicates": b"a: 1\n" * 100_000,
    "many acknowledgements": b"model_training:\n  backends:\n" + b"".join(
        b"    k%d: {type: ssh, host: h, gpus: 1}\n" % i for i in range(2000))
        + b"validation:\n  acknowledge:\n" + b"".join(b"  - model_training.backends.k%d\n" % i for i in range(2000)),
    "brackets": b"[" * 8_000_000, "dashes": b"- " * 4_000_000, "questions": b"? " * 4_000_000,
    "directives": b"".join(b"%%TAG !%d! x\n" % i for i in range(400_000)) + b"---\na: 1\n",
    "one long text": b"model_training: {backend: " + b"x" * 8_000_000 + b"}",
    "one long number": b"model_training: {retain_runs: " + b"9" * 8_000_000 + b"}",
    "one long key": b"model_training: {? " + b"k" * 8_000_000 + b" : 1}",
    "one long quote": b"a: '" + b"\n" * 8_000_000,
    "one long label": b"annotation_schemes: [{labels: [" + b"1" * 8_000_000 + b"]}]",
    "over the limit": b"a: " + b"x" * 9_000_000,
    "wide characters": b"a: " + "😀".encode() * 2_000_000,
    "not utf-8 at the end": b"a: " + b"x\n" * 3_900_000 + b"\xff",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_cost_little(tmp_path, name):
    """In a process of its own: under 200 MB resident and ten seconds of the processor, which a hang would pass."""
    file = tmp_path / "config.yaml"
    file.write_bytes(HOSTILE[name])
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from potato_training.cli.main import main\n"
        "code = main(['validate', sys.argv[1]])\n"
        # VmHWM, since ru_maxrss begins with what the parent held at the fork.
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(code, int(peak.split()[1]) // 1024, file=sys.stderr)\n")
    ran = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    code, megabytes = map(int, ran.stderr.split())
    assert code in (0, 1)
    assert megabytes < 200
    assert "Traceback" not in ran.stderr
