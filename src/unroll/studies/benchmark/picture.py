"""A record as a picture: for every shape the contestants' times as dots on one logarithmic axis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.base import picture_files
from unroll.studies.benchmark.contestants import PEERS
from unroll.studies.benchmark.record import Record, Row
from unroll.studies.benchmark.shapes import Shape
from unroll.studies.benchmark.table import fastest_precision, heading, number
from unroll.studies.benchmark.verdicts import best_peer, shapes, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, THEIRS, FLOOR, INK = "#1f5fa8", "#8a8a8a", "#c2452d", "#222222"
SUFFIXES = (".png", ".svg", ".pdf")
ROW, HEAD = 0.2, 0.75  # inches


def save(record: Record, path: Path) -> None:
    """Draw what the record's mode asks for."""
    from unroll.studies.benchmark import scaling_picture

    picture_files.save(lambda: scaling_picture.draw(record) if record.mode == "scaling" else draw(record), path)


def blank(width: float, height: float) -> Figure:
    """Make a figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw(record: Record) -> Figure:
    """Architectures from top to bottom, training procedures from left to right."""
    every_shape = shapes(record.rows)
    across = list(dict.fromkeys(s.procedure for s in every_shape))
    down = list(dict.fromkeys(s.architecture for s in every_shape))
    names = {a: _names([r for r in record.rows if r.shape.architecture == a]) for a in down}
    heights = [HEAD + ROW * len(names[a]) for a in down]
    figure = blank(3.1 * len(across) + 2.4, sum(heights) + 0.9)
    panels = figure.subplots(len(down), len(across), squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights})
    for i, architecture in enumerate(down):
        for j, procedure in enumerate(across):
            shape = next((s for s in every_shape if (s.architecture, s.procedure) == (architecture, procedure)), None)
            if shape is None:
                panels[i][j].set_axis_off()
            else:
                _panel(panels[i][j], record, shape, names[architecture], first=j == 0)
    for axes in panels[-1]:
        axes.set_xlabel("ms a run-batch", fontsize=8, color=INK)
    _share_time_axis(panels[0][0], record)
    figure.suptitle(f"One training step of one run: less is better\n{heading(record)}", fontsize=10, color=INK)
    return figure


def _panel(axes: Any, record: Record, shape: Shape, names: list[str], first: bool) -> None:
    row_by_title = {title(r): r for r in record.rows if r.shape == shape}
    best = min((r.median for r in row_by_title.values() if r.median), default=None)
    axes.set_xscale("log")
    axes.grid(True, axis="x", which="major", color="#ececec", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for y, name in enumerate(names):
        row = row_by_title.get(name)
        colour = THEIRS if row is not None and row.contestant in PEERS else OURS
        axes.axhline(y, color="#ececec", linewidth=0.6, zorder=0)
        if row is None:
            continue
        if row.median is None:
            axes.text(0.02, y, "failed", transform=axes.get_yaxis_transform(), fontsize=6, color=FLOOR, va="center")
            continue
        axes.plot([min(row.ms), max(row.ms)], [y, y], color=colour, linewidth=1, alpha=0.5)
        axes.plot([row.median], [y], "o", color=colour, markersize=4.5)
        axes.annotate(
            number(row.median),
            (max(row.ms), y),
            (5, 0),
            textcoords="offset points",
            fontsize=6.5,
            va="center",
            color=INK,
            weight="bold" if row.median == best else "normal",
        )
    precision = fastest_precision(record)
    floor = record.floor(next(iter(row_by_title.values())), precision)
    if floor:
        axes.axvline(floor, color=FLOOR, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
        axes.annotate(
            f"floor {number(floor)}",
            (floor, 1),
            (2, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=6,
            color=FLOOR,
            va="bottom",
            ha="left",
            rotation=0,
        )
    axes.set_yticks(range(len(names)), names if first else [], fontsize=7)
    axes.tick_params(axis="both", which="both", length=0, labelsize=7, colors=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.set_title(
        f"r = {shape.layers}, γ = {shape.hidden}, {shape.procedure}\n{_headline(record, shape)}",
        fontsize=7.5,
        loc="left",
        color=INK,
        pad=10,
    )


def _headline(record: Record, shape: Shape) -> str:
    """The one number of a panel: our best time against the best of theirs."""
    peer = best_peer(record, shape)
    ours = [r.median for r in record.rows if r.shape == shape and r.contestant not in PEERS and r.median]
    if not peer or not peer.median or not ours:
        return ""
    return f"{peer.median / min(ours):.1f} × as fast as the best peer"


def _names(rows: list[Row]) -> list[str]:
    """Every contestant of an architecture once: ours first, in the order measured."""
    return list(dict.fromkeys(title(r) for r in sorted(rows, key=lambda r: r.contestant in PEERS)))


def _share_time_axis(axes: Any, record: Record) -> None:
    """Give all panels one time axis, with space on the right for the last label."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    times = [ms for row in record.rows for ms in row.ms]
    floors = [f for row in record.rows if (f := record.floor(row, fastest_precision(record)))]
    if times:
        axes.set_xlim(min([*times, *floors]) * 0.75, max(times) * 3)
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1,), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
