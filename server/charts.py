"""Charts as SVG, made here: no script and no other host is needed to see them.

Colours come from page.css by class, so that light and dark both work; lines also differ in their dashes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup, escape

W, H = 560, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 34
_PLOT_W, _PLOT_H = W - LEFT - RIGHT, H - TOP - BOTTOM
#: How many looks page.css knows.
LOOKS = 6
XY = Sequence[tuple[float, float]]
At = Callable[[float], float]


def lines(title: str, series: Mapping[str, XY], *, x_label: str, unit_y: bool = False) -> Markup:
    """A chart of one or more lines. ``unit_y`` fixes the y axis at 0 to 1."""
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    if not xs:
        return Markup("")
    x_ticks, y_ticks = ticks(min(xs), max(xs)), [0.0, 0.25, 0.5, 0.75, 1.0] if unit_y else ticks(min(ys), max(ys))
    at_x, at_y = _scale(x_ticks, LEFT, _PLOT_W), _scale(y_ticks, TOP + _PLOT_H, -_PLOT_H)
    drawn = []
    for n, (name, points) in enumerate(series.items()):
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
        look = f"line look-{n % LOOKS}"
        if len(points) == 1:
            drawn.append(_dot(look, at_x(points[0][0]), at_y(points[0][1]), name))
        else:
            line = Markup('<polyline class="{}" points="{}"><title>{}</title></polyline>')
            drawn.append(line.format(look, path, name))
    last = "; ".join(f"{name} {points[-1][1]:.4g}" for name, points in series.items() if points)
    return _svg(f"{title}. Last: {last}", _axes(x_ticks, y_ticks, at_x, at_y, x_label) + Markup("").join(drawn))


def bars(title: str, counts: Sequence[int], *, x_label: str) -> Markup:
    """A histogram over 0 to 1 in equal bins."""
    if not any(counts):
        return Markup("")
    x_ticks, y_ticks = [0.0, 0.25, 0.5, 0.75, 1.0], ticks(0, max(counts), whole=True)
    at_x, at_y = _scale(x_ticks, LEFT, _PLOT_W), _scale(y_ticks, TOP + _PLOT_H, -_PLOT_H)
    width = _PLOT_W / len(counts)
    bar = Markup('<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>')
    drawn = Markup("").join(
        bar.format(
            LEFT + n * width + 1, at_y(count), width - 2, at_y(0) - at_y(count),
            f"{n / len(counts):.2f} to {(n + 1) / len(counts):.2f}: {count}",
        )
        for n, count in enumerate(counts) if count
    )
    return _svg(title, _axes(x_ticks, y_ticks, at_x, at_y, x_label) + drawn)


def calibration(title: str, bins: Sequence[tuple[float, float, int]]) -> Markup:
    """Confidence against how often it was right; each bin is (mean confidence, share right, items)."""
    if not bins:
        return Markup("")
    even = [0.0, 0.25, 0.5, 0.75, 1.0]
    at_x, at_y = _scale(even, LEFT, _PLOT_W), _scale(even, TOP + _PLOT_H, -_PLOT_H)
    most = max(n for _, _, n in bins)
    path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y, _ in bins)
    drawn = Markup('<line class="ideal" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(at_x(0), at_y(0), at_x(1), at_y(1))
    drawn += Markup('<polyline class="line look-0" points="{}"/>').format(path)
    for x, y, n in bins:
        words = f"confidence {x:.2f}: right {y:.0%} of {n}"
        drawn += _dot("dot look-0", at_x(x), at_y(y), words, 3 + 5 * math.sqrt(n / most))
    return _svg(title, _axes(even, even, at_x, at_y, "confidence") + drawn)


def ticks(low: float, high: float, *, whole: bool = False, about: int = 5) -> list[float]:
    """Round numbers from at or below ``low`` to at or above ``high``."""
    if high - low <= max(abs(low), abs(high)) * 1e-9:  # too close for round numbers between them
        low, high = low - (abs(low) or 0.5) / 2, high + (abs(high) or 0.5) / 2
    if high - low < 1e-300:
        low, high = 0.0, 1.0
    step = 10 ** math.floor(math.log10((high - low) / about))
    step = next(step * m for m in (1, 2, 5, 10, 20) if (high - low) / (step * m) <= about)
    if whole:
        step = max(1, round(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]


def _scale(values: Sequence[float], start: float, length: float) -> At:
    low, span = values[0], (values[-1] - values[0]) or 1.0
    return lambda value: start + (value - low) / span * length


def _axes(x_ticks: Sequence[float], y_ticks: Sequence[float], at_x: At, at_y: At, x_label: str) -> Markup:
    out = Markup("")
    for y in y_ticks:
        out += Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
            LEFT, W - RIGHT, at_y(y), at_y(y))
        out += Markup('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
            LEFT - 6, at_y(y) + 4, number(y))
    for x in x_ticks:
        out += Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            at_x(x), H - BOTTOM + 15, number(x))
    return out + Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>').format(
        LEFT + _PLOT_W / 2, H - 3, x_label)


def number(value: float) -> str:
    if abs(value) >= 10_000 and value % 1000 == 0:
        return f"{value / 1000:g}k"
    return f"{value:.4g}"


def _dot(look: str, x: float, y: float, title: str, radius: float = 3) -> Markup:
    return Markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>').format(
        look, x, y, radius, title)


def _svg(title: str, inside: Markup) -> Markup:
    # escape gives Markup, so nothing of a name can end the attribute
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        W, H, escape(title), inside)
