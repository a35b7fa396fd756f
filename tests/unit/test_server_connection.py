"""What the page says of a run whose machine cannot be reached."""

from types import SimpleNamespace

import pytest
from potato_training.server.rendering import block

LOST = {"up": False, "since": 1_700_000_000.0, "why": "ssh to gpu failed: <b>", "hint": "log in by hand"}


def shown(connection, over=False):
    return str(block("macros.html", "away", run=SimpleNamespace(over=over, facts={"connection": connection})))


def test_why_and_what_to_do():
    page = shown(LOST)
    assert "ssh to gpu failed: &lt;b&gt;" in page
    assert "log in by hand" in page
    assert "2023-11-1" in page
    assert "hint" not in shown({**LOST, "hint": ""})


@pytest.mark.parametrize(("connection", "over"), [(None, False), ({**LOST, "up": True}, False), (LOST, True)])
def test_nothing_of_a_connection_that_stands_or_is_over(connection, over):
    assert not shown(connection, over).strip()
