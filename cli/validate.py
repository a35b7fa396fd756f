"""`potato validate`: checks configs without starting anything."""

from __future__ import annotations

import os
import sys

from ..schema.check import Report, acknowledged, check
from ..schema.reading import read_bytes, read_stdin
from ..schema.report import as_github, as_json, as_text

HELP = "check a config without starting anything"

EPILOG = """\
examples:
  potato validate                        check config.yaml in this directory
  potato validate --strict a.yaml b.yaml warnings fail as well
  potato validate --format github        annotations for a pull request on GitHub
  git show HEAD:config.yaml | potato validate -

exit code: 0 well, 1 errors (with --strict also warnings), 2 wrong usage
"""


def configure(parser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("configs", metavar="CONFIG", nargs="*", default=["config.yaml"],
                        help="config files, or - for stdin (default: config.yaml)")
    parser.add_argument("--strict", action="store_true", help="fail on warnings too, but for those that "
                                                              "validation.acknowledge names")
    parser.add_argument("--training-only", action="store_true",
                        help="do not ask the installed annotation server about its own keys")
    parser.add_argument("--format", choices=("text", "json", "github"), default="text", help="default: text")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")


def run(args) -> int:
    with_potato = not args.training_only and _potato_is_installed()
    reports = [_report(path, with_potato) for path in args.configs or ["config.yaml"]]
    print(_printed(reports, args.format, args.strict))
    return int(any(report.fails(args.strict) for report in reports))


def _report(path: str, with_potato: bool) -> Report:
    stdin = path == "-"
    report = check(path, _Trainers(), read_stdin if stdin else read_bytes)
    with_potato = with_potato and not stdin  # Potato reads files alone
    if with_potato:
        from .potato_findings import add_to, ask

        with_potato = report.root is not None and add_to(report, ask(path))
    return acknowledged(report, potato_checked=with_potato)


def _potato_is_installed() -> bool:
    """Whether a package named potato is beside this one. Nothing is imported: that would take longer than the check."""
    # The first entry may be the current directory, and a project's directory may hold one called potato.
    return any(os.path.isfile(os.path.join(place, "potato", "validate_cli.py"))  # noqa: PTH113, PTH118
               for place in sys.path if place and place != os.getcwd())  # noqa: PTH109


class _Trainers:
    """Those of runtime.trainers, imported for a config that names others than the built-in ones, or parameters."""

    def _all(self):
        from ..runtime.trainers import Nameable

        return Nameable()

    def __contains__(self, name: str) -> bool:
        return name in self._all()

    def __iter__(self):
        return iter(self._all())

    def get(self, name: str):
        return self._all().get(name)


def _printed(reports: list[Report], form: str, strict: bool) -> str:
    if form == "json":
        import json

        values = [as_json(report, strict) for report in reports]
        return json.dumps(values[0] if len(values) == 1 else values, indent=2, ensure_ascii=True)
    write = as_github if form == "github" else as_text
    return "\n".join(write(report, strict) for report in reports)
