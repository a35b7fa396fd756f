"""The schema says something about every key, and docs/config.md says the same."""

from pathlib import Path

from jsonschema import Draft202012Validator
from potato_training.schema.check import config_schema
from potato_training.schema.describe import reference
from potato_training.schema.walk import Walker

ROOT = Path(__file__).parents[2]


def keys(schema, walker, path=""):
    """(path, schema) of every key that a config may have."""
    for key, prop in schema.get("properties", {}).items():
        prop = walker.resolve(prop)
        yield f"{path}.{key}", prop
        yield from keys(prop, walker, f"{path}.{key}")
    for part in ("ssh", "slurm", "agent") if path.endswith("model_training.backends") else ():
        yield from keys(walker.root["$defs"][part], walker, f"{path}.{part}")


def test_every_key_has_a_description_a_default_and_an_example():
    walker = Walker(config_schema())
    found = dict(keys(walker.root, walker))
    assert len(found) > 90
    for path, prop in found.items():
        assert prop.get("description", "").endswith("."), path
        assert "default" in prop or "x-default" in prop, path
        assert prop.get("examples"), path


def test_every_default_and_example_is_what_it_should_be():
    walker = Walker(config_schema())
    for path, prop in keys(walker.root, walker):
        judge = Draft202012Validator({**prop, "$defs": walker.root["$defs"]})
        for value in prop["examples"] + ([prop["default"]] if "default" in prop else []):
            assert not list(judge.iter_errors(value)), (path, value)


def test_the_reference_is_fresh():
    assert (ROOT / "docs" / "config.md").read_text("utf-8") == reference()


def test_the_reference_names_every_key():
    page = reference()
    walker = Walker(config_schema())
    for path, _ in keys(walker.root, walker):
        assert f"`{path.rpartition('.')[2]}`" in page or path.endswith((".model_training", ".validation", ".backends"))
