"""docs/trainers.md and docs/events.md say what the code has."""

import json
import re
from pathlib import Path

from potato_training.worker import protocol
from potato_training.worker.trainers import BUILTIN_NAMES, catalogue
from potato_training.worker.trainers.__main__ import table

ROOT = Path(__file__).parents[2]
TRAINERS = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
EVENTS = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")


def test_the_tables_of_parameters_are_the_schemas():
    found = dict(re.findall(r"<!-- parameters: (\S+) -->\n(.*?)\n<!-- end -->", TRAINERS, re.DOTALL))
    assert found == {name: table(info.params_schema) for name, info in catalogue().items()}


def test_every_trainer_is_described_with_its_install_line():
    for name, info in catalogue().items():
        assert f"## {name}\n" in TRAINERS and info.install_hint in TRAINERS
        assert f"| `{name}` |" in TRAINERS
    assert tuple(catalogue()) == BUILTIN_NAMES


def test_a_config_may_name_the_trainers_that_are_here():
    from potato_training.schema import rules

    assert BUILTIN_NAMES == rules.BUILTIN_NAMES


def test_every_event_kind_and_exit_code_is_described():
    schema = json.loads((ROOT / "schema" / "event.schema.json").read_text())
    assert tuple(schema["properties"]["event"]["enum"]) == protocol.EVENT_KINDS
    for kind in protocol.EVENT_KINDS:
        assert f"| `{kind}` |" in EVENTS
    for name, code in vars(protocol).items():
        if name.startswith("EXIT_") and isinstance(code, int):
            assert f"\n| {code} | " in EVENTS, name


def test_every_parameter_has_a_type_and_a_description():
    for info in catalogue().values():
        assert info.params_schema["additionalProperties"] is False
        for rule in info.params_schema["properties"].values():
            assert rule["type"] and rule["description"] and "default" in rule
