"""Templates of the page. An environment of our own: every value is escaped, whoever's app we are mounted in."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import flask
from jinja2 import ChainableUndefined, Environment, FileSystemLoader
from markupsafe import Markup

from .form import plain_number

_HERE = Path(__file__).parent
PREFIX = "/admin/training"
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=ChainableUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=printable,
    )
    made.filters.update(
        clock=clock, duration=duration, size=size, score=score, percent=percent, thousands=lambda n: f"{n:,}",
        words=lambda text: str(text).replace("_", " "), listed=listed, left=left,
        number=plain_number,
    )
    made.globals.update(static=static, url=url)
    return made


def render(name: str, **values: Any) -> str:
    return _environment().get_template(f"potato_training/{name}").render(**values)


def block(name: str, of: str, **values: Any) -> Markup:
    """One macro of a template: a region of the page that is sent again when it changes. Escaped already."""
    module = _environment().get_template(f"potato_training/{name}").module
    return Markup(getattr(module, of)(**values))  # noqa: S704 what an autoescaping template gave


def url(path: str = "") -> str:
    """An address of ours as the browser must ask for it, a proxy's prefix included."""
    return f"{flask.request.script_root}{PREFIX}{path}"


def static(name: str) -> str:
    return f"{url('/static/')}{name}?v={_version(name)}"


@cache
def _version(name: str) -> str:
    return hashlib.sha256((_HERE / "static" / name).read_bytes()).hexdigest()[:12]


def printable(value: Any) -> Any:
    """What a template is about to print. Texts come from anywhere: control characters, which HTML does not allow,
    and halves of characters, which no encoding has, are shown as U+FFFD."""
    if not isinstance(value, str) or value.isprintable():
        return value
    return type(value)(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", value))


# --- words for values ---------------------------------------------------------------------------------


def clock(moment: float | None) -> str:
    """Local time of this machine; the page's script knows the reader's from ``datetime``."""
    return "" if not moment else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s"


def left(moment: float | None) -> str:
    """How long it is until then."""
    return duration(max(0.0, (moment or time.time()) - time.time()))


def size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def score(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, (int, float)) else "–"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def listed(value: Any) -> str:
    """A label, or several."""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def plain(values: Mapping[str, Any]) -> str:
    """Parameters in one line."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())
