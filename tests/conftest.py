"""Shared by all tests: hypothesis settings, waiting for a condition, and a command that runs ``potato``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline and no "too slow": how fast a shared machine is today is no property of the code.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

ROOT = Path(__file__).parent
#: Far above what any awaited condition takes, so that only a real fault reaches it.
PATIENCE_S = 90.0


@pytest.fixture(scope="session")
def wait_until():
    """``wait_until(condition, what)``: calls until the answer is true, gives that answer, or fails the test."""

    def wait(condition, what="the condition", patience=PATIENCE_S):
        give_up = time.monotonic() + patience
        while True:
            answer = condition()
            if answer:
                return answer
            if time.monotonic() > give_up:
                pytest.fail(f"{what} did not come about in {patience:g} s")
            time.sleep(0.02)

    return wait


@pytest.fixture(scope="session")
def potato():
    """``potato("validate", ..., cwd=..., env=...)``: the real command in a process of its own."""

    def run(*arguments, **options):
        options.setdefault("timeout", PATIENCE_S)
        return subprocess.run(
            [sys.executable, "-m", "potato_training.cli", *map(str, arguments)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, **options,
        )

    return run


@pytest.fixture
def project(tmp_path):
    """``project("review-project")``: a copy of a project from tests/fixtures/projects to work on."""

    def copy(name):
        target = tmp_path / name
        shutil.copytree(ROOT / "fixtures" / "projects" / name, target)
        return target

    return copy
