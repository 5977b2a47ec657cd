"""Drift as a picture: perplexity against the age of the state, one line a run, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.drift import Drift

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#1f5fa8", "#c2452d", "#2f7d4f", "#8a5a9e", "#b07d12", "#4a4a4a")
INK, QUIET = "#222222", "#777777"
APART = 0.045  # of the picture's height, between two labels


def save(drifts: Mapping[str, Drift], path: Path) -> None:
    """Draw runs, by their names."""
    from matplotlib import rc_context

    # A run's name is no formula, whatever it is spelled with.
    with rc_context({"text.parse_math": False}):
        draw(drifts).savefig(path, format=path.suffix.lower().removeprefix("."))


def draw(drifts: Mapping[str, Drift]) -> Figure:
    """One line a run; beside it, dashed, what windows of k2 tokens give."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xscale="log", yscale="log")
    for place, drift in enumerate(drifts.values()):
        _line(axes, drift, COLOURS[place % len(COLOURS)])
    _frame(axes, drifts)
    _mark_k2(axes, drifts)
    _labels(axes, drifts)
    axes.set_title("Perplexity as the state grows old", fontsize=11, color=INK, loc="left", pad=22)
    axes.text(
        0,
        1.025,
        "solid: the state runs on since its reset, ± 1 standard error      dashed: windows of k2 tokens",
        transform=axes.transAxes,
        fontsize=7.5,
        color=QUIET,
    )
    return figure


def _line(axes: Any, drift: Drift, colour: str) -> None:
    # The middle of a bin on a logarithmic axis.
    ages = [math.sqrt(b.first * b.last) for b in drift.bins]
    low, high = ([drift.perplexity(b, errors) for b in drift.bins] for errors in (-1, 1))
    axes.fill_between(ages, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(ages, [drift.perplexity(b) for b in drift.bins], color=colour, linewidth=1.6, marker="o", markersize=2.8)
    axes.plot(
        [drift.k2, max(drift.tokens, drift.k2)],
        [drift.windowed.perplexity] * 2,
        color=colour,
        linewidth=1.1,
        linestyle=(0, (4, 3)),
    )


def _frame(axes: Any, drifts: Mapping[str, Drift]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    shown = [d.perplexity(b) for d in drifts.values() for b in d.bins] + [
        d.windowed.perplexity for d in drifts.values()
    ]
    narrow = max(shown) < 5 * min(shown)
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7) if narrow else (1, 2, 5)))
    axes.yaxis.set_major_formatter(plain)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.yaxis.minorticks_off()
    axes.set_xlim(0.9, max(d.tokens for d in drifts.values()) * 1.05)
    axes.set_xlabel("tokens read since the state was reset", fontsize=8.5, color=INK)
    axes.set_ylabel("perplexity", fontsize=8.5, color=INK)
    axes.tick_params(axis="both", which="both", labelsize=8, colors=INK, length=0)
    axes.grid(True, which="major", color="#ececec", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")


def _mark_k2(axes: Any, drifts: Mapping[str, Drift]) -> None:
    for k2 in sorted({d.k2 for d in drifts.values()}):
        axes.axvline(k2, color=QUIET, linewidth=0.8, linestyle=":", zorder=0)
        axes.annotate(
            f"k2 = {k2}",
            (k2, 1),
            (3, -4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=7.5,
            color=QUIET,
            va="top",
        )


def _labels(axes: Any, drifts: Mapping[str, Drift]) -> None:
    """Names at the lines' right ends, pushed apart where they would meet."""
    low, high = (math.log(y) for y in axes.get_ylim())
    ends = {name: (math.log(d.perplexity(d.bins[-1])) - low) / (high - low) for name, d in drifts.items()}
    height = -math.inf
    for name, end in sorted(ends.items(), key=lambda item: item[1]):
        height = max(end, height + APART)
        colour = COLOURS[list(drifts).index(name) % len(COLOURS)]
        axes.annotate(
            name,
            (1, height),
            (6, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=8,
            color=colour,
            va="center",
            annotation_clip=False,
        )
