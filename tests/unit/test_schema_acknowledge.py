"""validation.acknowledge, by its rules."""

import pytest
from potato_training.schema.check import acknowledged, check

SLURM = "{type: slurm, host: h, remote_dir: /shared, gres: 'gpu:1', time: %s}"


@pytest.fixture
def verdict(tmp_path):
    """Checks a config with these backends (name -> time) and entries; gives (names still warned of, notes, others)."""

    def run(backends, *entries, more=""):
        lines = ["model_training:", "  backends:"]
        lines += [f"    {name}: {SLURM % time}" for name, time in backends.items()]
        lines += [more] if more else []
        lines += ["validation:", "  acknowledge:"] + [f"    - {entry!r}" for entry in entries]
        file = tmp_path / "config.yaml"
        file.write_text("\n".join(lines) + "\n")
        report = acknowledged(check(str(file)))
        warned = [f.path.removeprefix("model_training.backends.").removesuffix(".time") for f in report.of("warning")]
        quiet = [f.path.removeprefix("model_training.backends.").removesuffix(".time") for f in report.acknowledged]
        return warned, quiet, report

    return run


TWO = {"cluster": "12:00:00", "big": "1-0"}


def test_an_entry_without_a_backend_acknowledges_every_warning_that_contains_it(verdict):
    warned, quiet, report = verdict(TWO, "more than 6 hours is long")
    assert (warned, quiet) == ([], ["cluster", "big"])
    assert not report.fails(strict=True)


@pytest.mark.parametrize("entry", [
    "model_training.backends.cluster", "model_training.backends.cluster.time", "backends.cluster",
    "model_training.backends.cluster.time is 12:00:00", "backends.cluster.time is 12:00:00. A job that holds",
    "model_training.backends.cluster.time: model_training.backends.cluster.time is",
])
def test_an_entry_that_names_a_backend_is_about_that_one(verdict, entry):
    warned, quiet, report = verdict(TWO, entry)
    assert (warned, quiet) == (["big"], ["cluster"])
    assert report.fails(strict=True)
    assert not report.fails(strict=False)


@pytest.mark.parametrize("other", ["cluster2", "cluster.b", "cluster-b", "cluster.time"])
def test_the_match_ends_the_name(verdict, other):
    warned, quiet, _ = verdict({"cluster": "1-0", other: "1-0"}, "model_training.backends.cluster")
    assert (warned, quiet) == ([other], ["cluster"])
    warned, quiet, _ = verdict({"cluster": "1-0", other: "1-0"}, f"model_training.backends.{other}")
    assert (warned, quiet) == (["cluster"], [other])


def test_a_beginning_of_a_name_names_nothing(verdict):
    warned, quiet, _ = verdict({"cluster": "1-0"}, "model_training.backends.clus")
    assert warned == ["cluster", "validation.acknowledge[0]"]
    assert not quiet


def test_case_counts(verdict):
    warned, _, report = verdict({"cluster": "1-0"}, "MORE THAN 6 HOURS", "model_training.backends.Cluster")
    assert warned == ["cluster", "validation.acknowledge[0]", "validation.acknowledge[1]"]
    assert "matches no warning" in report.of("warning")[1].message


def test_twelve_characters_are_enough_and_eleven_are_not(verdict):
    assert verdict({"cluster": "1-0"}, "than 6 hours")[1] == ["cluster"]
    warned, quiet, report = verdict({"cluster": "1-0"}, "han 6 hours")
    assert (warned, quiet) == (["cluster", "validation.acknowledge[0]"], [])
    assert "11 characters" in report.of("warning")[1].message


def test_one_warning_may_be_named_twice_and_one_entry_may_name_several(verdict):
    warned, quiet, _ = verdict(TWO, "more than 6 hours", "check its policy")
    assert (warned, quiet) == ([], ["cluster", "big"])


def test_an_error_is_not_acknowledged(verdict):
    entries = ("retain_runs is many", "check its policy")
    warned, _, report = verdict({"cluster": "1-0"}, *entries, more="  retain_runs: many")
    assert len(report.of("error")) == 1
    assert warned == ["validation.acknowledge[0]"]
    assert "names an error" in report.of("warning")[0].message


def test_what_can_only_be_potatos_is_a_note(verdict):
    _, _, report = verdict({}, "Unknown config key 'colour'", more="    a: {type: agent}")
    assert [f.level for f in report.findings] == ["note"]
    assert not report.fails(strict=True)


def test_an_unmatched_entry_about_our_keys_is_a_warning(verdict):
    for entry in ("model_training.retain_runs", "backends.none.time is", "long on a shared cluster; check its policy"):
        assert verdict({}, entry, more="    a: {type: agent}")[0] == ["validation.acknowledge[0]"]


def test_with_potatos_own_findings_at_hand_an_unmatched_entry_is_a_warning(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("validation: {acknowledge: [Unknown config key]}\n")
    assert [f.level for f in acknowledged(check(str(file)), potato_checked=True).findings] == ["warning"]
