"""The scaling study as a picture: ms a run-batch against M, γ, k2 and r, one panel each, both axes logarithmic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unroll.studies.benchmark.contestants import PEERS, TITLES
from unroll.studies.benchmark.picture import FLOOR, INK, OURS, THEIRS, blank
from unroll.studies.benchmark.record import Record, Row
from unroll.studies.benchmark.shapes import Shape
from unroll.studies.benchmark.table import fastest_precision, heading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {"runs": "M, runs side by side", "hidden": "γ, hidden units", "k2": "k2, time steps", "layers": "r, layers"}
DASHES = ("-", (0, (4, 1.5)), (0, (1.5, 1.5)), (0, (5, 1, 1, 1)))
DECADE = 55.0  # points from 1 to 10 on the vertical axis, about
APART = 8.0  # points between two names
Line = list[tuple[float, float]]


def draw(record: Record) -> Figure:
    """Four panels around one centre."""
    figure = blank(10.5, 7.2)
    centre = Shape(**record.settings["centre"])
    panels = figure.subplots(2, 2, sharey=True).flatten()
    for axes, (axis, words) in zip(panels, PANELS.items(), strict=True):
        lines = lines_over(record, centre, axis)
        _panel(axes, lines, words, _floor(record, centre, axis))
        values = sorted({x for line in lines.values() for x, _ in line})
        axes.set_xticks(values, _names(values), fontsize=7)
        axes.minorticks_off()
    for axes in panels[::2]:
        axes.set_ylabel("ms a run-batch", fontsize=8, color=INK)
    figure.suptitle(
        f"One training step of one run, around r = {centre.layers}, γ = {centre.hidden}, k2 = {centre.k2}, "
        f"{centre.procedure}\n{heading(record)}",
        fontsize=10,
        color=INK,
    )
    return figure


def _names(values: list[float]) -> list[str]:
    """Name the ticks; a tick too close to the one before it gets no name."""
    least = math.log(max(values) / min(values)) / 30
    named: list[float] = []
    for value in values:
        if not named or math.log(value / named[-1]) > least:
            named.append(value)
    return [f"{value:g}" if value in named else "" for value in values]


def lines_over(record: Record, centre: Shape, axis: str) -> dict[str, Line]:
    """Each contestant's medians along one axis, the others at the centre. Over M, a fleet of any size is one line."""
    lines: dict[str, Line] = {}
    rows_on_axis = [row for row in record.rows if row.median is not None and _on(row, centre, axis)]
    most_runs = max((row.runs for row in rows_on_axis), default=1)
    for row in rows_on_axis:
        assert row.median is not None
        if row.contestant in PEERS:
            # A peer trains one run at a time, however many there are.
            xs = (1, most_runs) if axis == "runs" else (getattr(row.shape, axis),)
            lines.setdefault(TITLES[row.contestant], []).extend((x, row.median) for x in xs)
        elif axis == "runs":
            lines.setdefault(f"Unroll, {row.precision}", []).append((row.runs, row.median))
        elif row.runs in (1, record.settings["fleet"]):
            fleet = f"fleet of {row.runs}" if row.contestant == "unroll-fleet" else "alone"
            lines.setdefault(f"Unroll, {fleet}, {row.precision}", []).append((getattr(row.shape, axis), row.median))
    return {name: sorted(set(line)) for name, line in lines.items()}


def _on(row: Row, centre: Shape, axis: str) -> bool:
    """Whether a row differs from the centre in nothing but this."""
    if axis == "runs":
        return row.shape == centre
    # k1 follows k2 where windows are shorter than the stride between them.
    same = {"k1": centre.k1, axis: getattr(centre, axis)}
    return replace(row.shape, **same) == centre


def _floor(record: Record, centre: Shape, axis: str) -> Line:
    precision = fastest_precision(record)
    points = {
        (row.runs if axis == "runs" else getattr(row.shape, axis)): row for row in record.rows if _on(row, centre, axis)
    }
    return [(x, floor) for x, row in sorted(points.items()) if (floor := record.floor(row, precision))]


def _panel(axes: Any, lines: dict[str, Line], words: str, floor: Line) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    ours = theirs = 0
    ends = []
    for name, line in lines.items():
        is_ours = name.startswith("Unroll")
        style = DASHES[(ours if is_ours else theirs) % len(DASHES)]
        ours, theirs = ours + is_ours, theirs + (not is_ours)
        colour = OURS if is_ours else THEIRS
        marker = "" if len({y for _, y in line}) == 1 < len(line) else "o"
        axes.plot(*zip(*line, strict=True), marker=marker, markersize=3, linewidth=1.2, linestyle=style, color=colour)
        ends.append((line[-1], name, colour))
    if floor:
        axes.plot(*zip(*floor, strict=True), color=FLOOR, linewidth=0.9, linestyle=(0, (3, 2)))
        ends.append((floor[-1], "arithmetic floor", FLOOR))
    below = -math.inf
    for (x, y), name, colour in sorted(ends, key=lambda end: end[0][1]):
        height = math.log10(y) * DECADE
        shown = max(height, below + APART)
        axes.annotate(
            name, (x, y), (5, shown - height), textcoords="offset points", fontsize=6.5, va="center", color=colour
        )
        below = shown
    # Names stand behind the last point of their line, so a quarter of the panel is theirs.
    points = [x for line in lines.values() for x, _ in line]
    if points:
        low = min(points)
        high = max(points)
        span = max(high / low, 2.0)
        axes.set_xlim(low / span**0.04, high * span**0.62)
    axes.set_title(words, fontsize=9, loc="left", color=INK)
    axes.grid(True, axis="y", which="major", linewidth=0.4, color="#e2e2e2")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="both", which="both", length=0, labelsize=7, colors=INK, labelleft=True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbbbbb")
