"""The stand-in's words, asked of a real Slurm."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
WORDS = json.loads((Path(__file__).parents[1] / "fixtures" / "fake_slurm" / "words.json").read_text())


def test_the_real_one_speaks_like_the_stand_in(slurm_cluster):
    here = slurm_cluster.fresh()
    (here / "j.sh").write_text("#!/bin/bash\n#SBATCH --output=slurm.out\nsleep 1000\n")
    held = slurm_cluster.sbatch(here / "j.sh", "--hold")
    try:
        for case in WORDS:
            argv = [a.replace("HELD", held) for a in case["argv"]]
            more = {"input": case["stdin"]} if "stdin" in case else {}
            env = {**slurm_cluster.env, **case.get("env", {})}
            done = slurm_cluster.run(argv, check=False, cwd=here, env=env, **more)
            assert done.returncode == case["rc"], (argv, done)
            for stream in ("stdout", "stderr"):
                wanted = case[stream].replace("HELD", held)
                assert re.fullmatch(wanted, getattr(done, stream)), (argv, stream, getattr(done, stream))
    finally:
        slurm_cluster.cancel_all()
