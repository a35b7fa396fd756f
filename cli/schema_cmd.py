"""`potato schema`: the JSON Schema of config.yaml, for editors."""

from __future__ import annotations

import sys
from importlib.resources import files

HELP = "print the JSON Schema of config.yaml, for editors"

EPILOG = """\
examples:
  potato schema > potato-config.schema.json
  potato schema --of report              the schema of `potato validate --format json`

An editor with a YAML language server completes and underlines keys when the config begins with
  # yaml-language-server: $schema=potato-config.schema.json
"""

_FILES = {"config": "config.schema.json", "report": "report.schema.json"}


def configure(parser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--of", choices=tuple(_FILES), default="config", help="default: config")


def run(args) -> int:
    sys.stdout.write(files("potato_training.schema").joinpath(_FILES[args.of]).read_text("utf-8"))
    return 0
