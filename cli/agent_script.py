"""python -m potato_training.cli.agent_script FILE BACKEND PYTHON

The job script of an agent that submits its own workers, from its --slurm-config: one line of JSON on stdout,
``{"script", "poll_interval_s"}``. A process of its own, so that the agent, which stays for weeks, is light.
"""

from __future__ import annotations

import json
import sys

from ..schema.errors import UserError

#: Stands where other scripts have a run's id: this one is for every run, and jobs are named as they are submitted.
EACH_RUN = "each-run"


def main(arguments: list[str]) -> int:
    from .. import __version__
    from ..compiler.compile import compile_job
    from ..schema.slurm_config import read_slurm_config

    path, backend, python = arguments
    try:
        config = read_slurm_config(path)
    except UserError as error:
        print("\n".join(filter(None, (error.message, error.hint))), file=sys.stderr)
        return 2
    for note in config.notes:
        print(note, file=sys.stderr)
    script = compile_job(
        config.keys, name=backend, run_id=EACH_RUN, python=python, sha256=config.sha256, version=__version__
    )
    print(json.dumps({"script": script, "poll_interval_s": config.keys.get("poll_interval_s")}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
