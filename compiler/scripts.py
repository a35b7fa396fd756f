"""Rendering: a JobSpec and the templates room become scripts."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .. import templates
from .jobspec import JobSpec
from .quoting import FILTERS, finish

if TYPE_CHECKING:
    import jinja2

#: Script -> template, by backend type, in the order in which they are shown. The first one matters most.
SCRIPTS = {
    "slurm": {
        "job.sh": "sbatch/job.sh.j2",
        "launch.sh": "sbatch/launch.sh.j2",
        "probe.sh": "sbatch/probe.sh.j2",
        "receive_code.sh": "ssh/receive_code.sh.j2",
        "send_artifacts.sh": "ssh/send_artifacts.sh.j2",
        "remove_job.sh": "ssh/remove_job.sh.j2",
    },
    "ssh": {
        "launch.sh": "ssh/launch.sh.j2",
        "probe.sh": "ssh/probe.sh.j2",
        "venv.sh": "ssh/venv.sh.j2",
        "receive_code.sh": "ssh/receive_code.sh.j2",
        "send_artifacts.sh": "ssh/send_artifacts.sh.j2",
        "remove_job.sh": "ssh/remove_job.sh.j2",
    },
}
_ALL = {kind: tuple(scripts) for kind, scripts in SCRIPTS.items()}
_WITHOUT_VENV = {kind: tuple(name for name in names if name != "venv.sh") for kind, names in _ALL.items()}


def template_text(name: str) -> str:
    """The text of a template, from the room beside this one: a folder, a wheel or a zip."""
    path = os.path.join(os.path.dirname(templates.__file__), *name.split("/"))  # noqa: PTH118, PTH120 - no pathlib at start
    return templates.__loader__.get_data(path).decode("utf-8")  # type: ignore[union-attr]


@functools.lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The one environment of the process: making one anew for each script costs a hundred renderings."""
    import jinja2

    env = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text), undefined=jinja2.StrictUndefined, finalize=finish,
        optimized=False,  # there is nothing constant in these templates to look for
        autoescape=False,  # noqa: S701 - shell, not HTML: ``finish`` quotes
        auto_reload=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        comment_start_string="{##", comment_end_string="##}",  # "{#" alone is shell: ${#list[@]}
    )
    env.filters = dict(FILTERS)
    return env


def script_names(spec: JobSpec) -> tuple[str, ...]:
    """The scripts that a run of this job uses; ``venv.sh`` is there when packages are."""
    return (_ALL if spec.place.packages else _WITHOUT_VENV).get(spec.place.type, ())


def render(spec: JobSpec, name: str) -> str:
    """The text of one script. Same job, same bytes. KeyError for a script that the backend has not."""
    return _template(SCRIPTS[spec.place.type][name]).render({"job": spec, "place": spec.place})


@functools.cache
def _template(name: str) -> jinja2.Template:
    return environment().get_template(name)


class Scripts(Mapping[str, str]):
    """File name -> text, in a fixed order. A script is rendered when somebody first reads it."""

    def __init__(self, spec: JobSpec):
        self._spec = spec
        self._names = script_names(spec)
        self._texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        text = self._texts.get(name)
        if text is None:
            if name not in self._names:
                raise KeyError(name)
            text = self._texts[name] = render(self._spec, name)
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
