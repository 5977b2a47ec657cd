"""A run's perplexity curve as a small SVG in the flow of a page: no file, no script, and the page's own colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from unroll.base.printable import one_line
from unroll.runs.curve import thousands

# Seen on white and on black; the axes and words have the colour of the text around them.
COLOURS = {"windowed": "#3b82c4", "progressive": "#d9623b"}
OTHER = "#8a6fc4"
WIDTH, HEIGHT = 520, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 110, 10, 40
TITLE = "perplexity of the test set, by train sequences"
STEPS = (1, 2, 5)
TICKS = 5  # of an axis, at most

Point = tuple[float, float]


def svg(lines: Iterable[Mapping[str, Any]]) -> str:
    """The curve of a run's evaluations, both axes logarithmic; nothing where no perplexity is finite."""
    curves = points_of(lines)
    every = [point for points in curves.values() for point in points]
    if not every:
        return ""
    across = Axis([x for x, _ in every], LEFT, WIDTH - RIGHT)
    up = Axis([y for _, y in every], HEIGHT - BOTTOM, TOP)
    parts = [_grid(across, up)]
    ends = _apart([up.at(points[-1][1]) for points in curves.values()])
    for (procedure, points), end in zip(curves.items(), ends, strict=True):
        colour = COLOURS.get(procedure, OTHER)
        path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in points)
        if len(points) > 1:
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = (axis.at(value) for axis, value in zip((across, up), points[-1], strict=True))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        words = f"{points[-1][1]:,.4g} {escape(one_line(procedure))}"
        parts.append(f'<text x="{x + 8:.1f}" y="{end + 4:.1f}" fill="{colour}" fill-opacity="1">{words}</text>')
    said = escape(f"{TITLE}: {every[0][1]:,.4g} to {every[-1][1]:,.4g}")
    return (
        f'<svg role="img" aria-label="{said}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'style="max-width:100%;height:auto;display:block;margin:4px 0;overflow:visible" '
        'font-family="system-ui,sans-serif" font-size="11">' + "".join(parts) + "</svg>"
    )


def points_of(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """(train sequences, perplexity) of each procedure, where both can stand on a logarithmic axis."""
    curves: dict[str, list[Point]] = {}
    for line in lines:
        for procedure, value in line["perplexity"].items():
            if value is not None and math.isfinite(value) and value > 0 and line["sequences"] > 0:
                curves.setdefault(procedure, []).append((line["sequences"], value))
    return curves


class Axis:
    """A logarithmic axis from one pixel to another."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = math.log(min(values)), math.log(max(values))
        # A flat curve runs through the middle.
        self.low, self.high = (low, high) if high - low > 1e-6 else (low - 0.5, high + 0.5)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (math.log(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers on the axis: 1, 2 and 5 times powers of ten, or fewer of them."""
        decades = range(math.floor(self.low / math.log(10)), math.ceil(self.high / math.log(10)) + 1)
        inside = [
            value
            for decade in decades
            for step in STEPS
            if self.low - 1e-9 <= math.log(value := step * 10.0**decade) <= self.high + 1e-9
        ]
        if len(inside) < 2:  # a short stretch between two round numbers: its ends
            inside = [math.exp(self.low), math.exp(self.high)]
        return inside[:: math.ceil(len(inside) / TICKS)]


def _grid(across: Axis, up: Axis) -> str:
    parts = []
    for value in up.ticks():
        y = up.at(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.4g}</text>')
    for value in across.ticks():
        x = across.at(value)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{thousands(value)}</text>')
    words = "".join(part for part in parts if part.startswith("<text"))
    rules = "".join(part for part in parts if part.startswith("<line"))
    title = f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{TITLE}</text>'
    return (
        f'<g stroke="currentColor" stroke-opacity=".18">{rules}</g>'
        f'<g fill="currentColor" fill-opacity=".7">{words}{title}</g>'
    )


def _apart(heights: Sequence[float], gap: float = 13.0) -> list[float]:
    """Heights of labels, moved down where one would lie on another."""
    placed: dict[int, float] = {}
    last = -math.inf
    for n in sorted(range(len(heights)), key=heights.__getitem__):
        last = placed[n] = max(heights[n], last + gap)
    return [placed[n] for n in range(len(heights))]
