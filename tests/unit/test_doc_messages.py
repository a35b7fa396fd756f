"""The messages that people search for stand in docs/troubleshooting.md, each with a cause and a remedy."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]

MESSAGES = (
    "ssh to gpu.example.org failed: Permission denied",
    "ssh to gpu.example.org failed: Host key verification failed",
    "/opt/conda/bin/python3 was not found on gpu.example.org",
    "No GPU has 4000 MB free",
    "Trainer 'hf-text-classification' could not be imported",
    "This host's torch has no kernels for any of its GPUs",
    "No word from the agent on gpu-server for 120 seconds",
    "The copy from gpu.example.org sent nothing for 180 s",
    "login.cluster.example.org has no sbatch on PATH, so it cannot submit jobs",
    "SLURM job 4242 ended before the worker finished: it reached its time limit",
    "no token issued yet",
    "No agent has asked for work for lab-workstation",
    "nvrtc: error: failed to open libnvrtc-builtins.so.13.0",
    "decision-calibrate runs on the local backend only",
    "The run was stopped after 3600 seconds (model_training.max_wall_seconds)",
    "The server stopped during this run",
)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_has_its_row(message):
    row = next((row for row in ROWS if row.startswith(f"| `{message}")), None)
    assert row, "no row begins with it"
    assert all(cell.strip() for cell in row.strip("|").split("|")) and row.count("|") == 4
