"""python -m potato_training.worker --spec spec.json [--exit-code-file exit_code]"""

from __future__ import annotations

import argparse
import sys
from typing import List


def parse(argv: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m potato_training.worker",
        description="Runs one training job: reads a spec and a bundle, trains, and writes events to standard output, "
                    "predictions.jsonl and artifacts/ beside the spec.",
        epilog="example: cd job && python -m potato_training.worker --spec spec.json >> events.jsonl 2>> stderr.log",
    )
    parser.add_argument("--spec", required=True, metavar="FILE", help="what to train")
    parser.add_argument("--exit-code-file", metavar="FILE", help="gets the exit code, by rename, as the last act")
    return parser.parse_args(argv)


if __name__ == "__main__":
    arguments = parse(sys.argv[1:])
    from .session import main

    main(arguments.spec, arguments.exit_code_file)
