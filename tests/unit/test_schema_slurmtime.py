"""Slurm's time limits, as sbatch itself reads them."""

import os
import shutil
import subprocess

import pytest
from potato_training.schema.slurmtime import UNLIMITED, seconds

MINUTE, HOUR, DAY = 60, 3600, 86400

FORMS = [
    ("90", 90 * MINUTE), ("05", 5 * MINUTE), ("4:00", 4 * MINUTE), ("0:30", 30), ("90:00", 90 * MINUTE),
    ("12:00:00", 12 * HOUR), ("04:00:00", 4 * HOUR), ("1:90:00", 2.5 * HOUR), ("1-12", 36 * HOUR), ("1-48", 3 * DAY),
    ("1-12:30", 36.5 * HOUR), ("0-05:59:59", 6 * HOUR - 1), ("1-12:30:15", 36.5 * HOUR + 15),
    ("1-0:75", DAY + 75 * MINUTE),
    ("0", UNLIMITED), ("0:0", UNLIMITED), ("00:00:00", UNLIMITED), ("UNLIMITED", UNLIMITED), ("unlimited", UNLIMITED),
    ("INFINITE", UNLIMITED), ("Infinite", UNLIMITED), ("999999-0", 999999 * DAY),
]
REFUSED_BY_BOTH = ["1h", "", " 90", "90 ", "24:00:00:00", "1-2-3", "-1-", ":5", "5:", "1::2", "::1", "1:2:", "1-1:",
                   "1-:1", "1.5", "+5", "1-1:1:1:1", "True", "36000.0", "-1:"]
#: sbatch 22.05 takes these, and nobody means what it makes of them.
REFUSED_BY_US = ["-5", "-1", "-0", "1-"]


@pytest.mark.parametrize(("text", "value"), FORMS)
def test_slurms_forms(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", [*REFUSED_BY_BOTH, *REFUSED_BY_US, "90\n", "٣", "1" * 12, "9999999-0"])
def test_all_else_is_no_time(text):
    assert seconds(text) is None


@pytest.mark.real
@pytest.mark.skipif(not shutil.which("sbatch"), reason="no sbatch here")
def test_sbatch_agrees(tmp_path):
    """sbatch reads its options before it looks for a controller: none is needed."""
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=16999\nNodeName=localhost\n"
        "PartitionName=p Nodes=localhost Default=YES\nMessageTimeout=1\n")
    (tmp_path / "job.sh").write_text("#!/bin/sh\ntrue\n")

    def takes(text):
        said = subprocess.run(["sbatch", f"--time={text}", "job.sh"], cwd=tmp_path, capture_output=True, text=True,
                              env={**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}, timeout=60).stderr
        assert "Invalid --time" in said or "contact slurm controller" in said, said
        return "Invalid --time" not in said

    for text, _ in FORMS:
        assert takes(text), text
    for text in REFUSED_BY_BOTH:
        assert not takes(text), text
    for text in REFUSED_BY_US:
        assert takes(text), text
