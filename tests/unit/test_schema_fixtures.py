"""A file in fixtures/configs is a test: what `potato validate` says of it stands beside it."""

import shutil
from pathlib import Path

import pytest
from potato_training.schema.acknowledge import PIECES
from potato_training.schema.check import acknowledged, check
from potato_training.schema.config import load
from potato_training.schema.findings import ERROR, WARNING
from potato_training.schema.report import as_text

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"
GOOD = sorted((CONFIGS / "good").glob("*.yaml"))
BAD = sorted((CONFIGS / "bad").glob("*.yaml"))


def reported(config, monkeypatch):
    monkeypatch.chdir(config.parent)
    return acknowledged(check(config.name))


@pytest.mark.parametrize("config", GOOD, ids=lambda p: p.stem)
def test_a_good_config_passes_strict_and_says_what_it_should(config, monkeypatch):
    report = reported(config, monkeypatch)
    assert as_text(report, strict=True) + "\n" == config.with_suffix(".txt").read_text("utf-8")
    assert not report.fails(strict=True)


@pytest.mark.parametrize("config", BAD, ids=lambda p: p.stem)
def test_a_bad_config_says_what_it_should(config, monkeypatch):
    report = reported(config, monkeypatch)
    assert as_text(report, strict=True) + "\n" == config.with_suffix(".txt").read_text("utf-8")
    assert report.fails(strict=True)


@pytest.mark.parametrize("config", BAD, ids=lambda p: p.stem)
def test_every_finding_of_a_bad_config_has_a_place_and_a_sentence(config):
    lines = config.read_bytes().decode("utf-8", "replace").splitlines() or [""]
    findings = check(str(config)).findings
    for finding in findings:
        assert 1 <= finding.line <= len(lines) + 1
        assert finding.column >= 1
        assert finding.message
        assert "\n" not in finding.message + finding.hint
    assert len(set(findings)) == len(findings)


@pytest.mark.parametrize("config", BAD + GOOD, ids=lambda p: p.stem)
def test_there_is_a_config_exactly_when_there_is_no_error(config):
    checked = load(config)
    assert (checked.config is None) == bool(checked.errors)


def test_there_are_many_bad_files_and_none_without_its_findings():
    assert len(BAD) >= 150
    for folder in ("good", "bad"):
        names = {p.stem for p in (CONFIGS / folder).glob("*.yaml")}
        assert names == {p.stem for p in (CONFIGS / folder).glob("*.txt")}


def test_every_warning_has_one_of_the_pieces_by_which_acknowledge_knows_ours():
    warnings = {f.message for config in BAD + GOOD for f in check(str(config)).of(WARNING)}
    unknown = {w for w in warnings if not any(piece in w for piece in PIECES)}
    assert not unknown
    unseen = {piece for piece in PIECES if not any(piece in w for w in warnings)}
    assert not unseen


def test_the_six_hour_warning_is_word_for_word():
    report = check(str(CONFIGS / "bad" / "slurm-time-twelve-hours.yaml"))
    assert [f.message for f in report.of(WARNING)] == [
        "model_training.backends.cluster.time is 12:00:00. A job that holds a GPU for more than 6 hours is long on a "
        "shared cluster; check its policy"
    ]


#: The mistakes that the tutorial names, each made in the tutorial's own config: (what is written, what
#: replaces it, the line that the finding is on, its path and a piece of it).
TUTORIAL_MISTAKES = [
    ("      job_python: /shared/envs", "      packages: [peft]\n      job_python: /shared/envs", "packages: [peft]",
     "model_training.backends.cluster.packages", "not a key of a slurm backend"),
    ("      host: gpu.example.org\n", "", "type: ssh", "model_training.backends.gpu-server.host", "host is missing"),
    ("      host: login.cluster.example.org\n", "", "type: slurm", "model_training.backends.cluster.host",
     "host is missing"),
    ("/shared/projects/me/potato-training", "/tmp/potato-training", "remote_dir: /tmp",
     "model_training.backends.cluster.remote_dir", "local to each node"),
    ("backend: gpu-server", "backend: gpu-sever", "backend: gpu-sever", "model_training.backend",
     "no backend of that name"),
]


@pytest.mark.parametrize(("written", "instead", "on_line", "path", "words"), TUTORIAL_MISTAKES)
def test_the_tutorials_mistakes_are_found_where_they_stand(tmp_path, written, instead, on_line, path, words):
    text = (CONFIGS / "good" / "tutorial.yaml").read_text()
    assert text.count(written) == 1
    text = text.replace(written, instead)
    config = tmp_path / "config.yaml"
    config.write_text(text)
    (finding,) = [f for f in check(str(config)).findings if f.level == ERROR]
    assert finding.path == path
    assert words in finding.message
    assert on_line in text.splitlines()[finding.line - 1]


def test_a_copy_under_another_name_is_named_so(tmp_path, monkeypatch):
    shutil.copy(CONFIGS / "bad" / "slurm-time-hours.yaml", tmp_path / "other.yaml")
    monkeypatch.chdir(tmp_path)
    assert as_text(check("other.yaml"), strict=False).startswith("other.yaml:16:13: error: model_training.backends.")
