"""Drift as a picture: perplexity against the age of the state, one line per run, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.base import picture_files
from unroll.runs.drift import Drift

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#1f5fa8", "#c2452d", "#2f7d4f", "#8a5a9e", "#b07d12", "#4a4a4a")
INK, QUIET = "#222222", "#777777"
APART = 0.06  # of the upper panel's height, between two labels
LEAST = 0.01  # nats that the lower panel shows at least, so that chance does not look like much


def save(drifts: Mapping[str, Drift], path: Path) -> None:
    """Draw runs, each by its name."""
    picture_files.save(lambda: draw(drifts), path)


def draw(drifts: Mapping[str, Drift]) -> Figure:
    """Draw perplexity above; below, magnified, the cost of old states against windows of k2 tokens."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [2, 1]})
    upper.set_xscale("log")
    upper.set_yscale("log")
    for index, drift in enumerate(drifts.values()):
        _line(upper, drift, COLOURS[index % len(COLOURS)])
        _difference(lower, drift, COLOURS[index % len(COLOURS)])
    _frame(upper, lower, drifts)
    for axes in (upper, lower):
        _mark_k2(axes, drifts, named=axes is upper)
    _labels(upper, {name: d.perplexity(d.bins[-1]) for name, d in drifts.items()})
    _heading(upper, "Perplexity as the state grows old", "solid: the state runs on since its reset, ± 1 standard error")
    _heading(
        lower, "", "the same less the dashed line, token by token: above 0 an old state is worse than a fresh window"
    )
    upper.annotate(
        "dashed: windows of k2 tokens", (1, 1.025), xycoords="axes fraction", fontsize=7.5, color=QUIET, ha="right"
    )
    return figure


def _heading(axes: Any, title: str, words: str) -> None:
    axes.set_title(title, fontsize=11, color=INK, loc="left", pad=22 if title else 6)
    axes.text(0, 1.025, words, transform=axes.transAxes, fontsize=7.5, color=QUIET)


def _difference(axes: Any, drift: Drift, colour: str) -> None:
    ages = _ages(drift)
    above = [b.above for b in drift.bins]
    low, high = ([b.above + sign * b.above_error for b in drift.bins] for sign in (-1, 1))
    axes.fill_between(ages, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(ages, above, color=colour, linewidth=1.6, marker="o", markersize=2.8)


def _ages(drift: Drift) -> list[float]:
    """The middles of the bins on a logarithmic axis."""
    return [math.sqrt(b.first * b.last) for b in drift.bins]


def _line(axes: Any, drift: Drift, colour: str) -> None:
    ages = _ages(drift)
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


def _frame(upper: Any, lower: Any, drifts: Mapping[str, Drift]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    shown = [d.perplexity(b) for d in drifts.values() for b in d.bins] + [
        d.windowed.perplexity for d in drifts.values()
    ]
    narrow = max(shown) < 4 * min(shown)
    upper.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]) if narrow else LogLocator(subs=(1, 2, 3, 5, 7)))
    low, high = upper.get_ylim()
    upper.set_ylim(low, high * (high / low) ** 0.08)  # room for the name of k2
    for axis in (upper.xaxis, upper.yaxis):
        axis.set_major_formatter(plain)
        axis.set_minor_formatter(NullFormatter())
    upper.yaxis.minorticks_off()
    upper.set_xlim(0.9, max(d.tokens for d in drifts.values()) * 1.05)
    upper.set_ylabel("perplexity", fontsize=8.5, color=INK)
    # States that have read little are worse by far; the lower panel is for old ones.
    old = [abs(b.above) + b.above_error for d in drifts.values() for b in d.bins if b.first > d.k2 / 2]
    most = 1.15 * max([LEAST, *(value for value in old if math.isfinite(value))])
    lower.set_ylim(-most, most)
    lower.axhline(0, color=QUIET, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
    lower.set_ylabel("nats above windowed", fontsize=8.5, color=INK)
    lower.set_xlabel("tokens read since the state was reset", fontsize=8.5, color=INK)
    for axes in (upper, lower):
        axes.tick_params(axis="both", which="both", labelsize=8, colors=INK, length=0)
        axes.grid(True, which="major", color="#ececec", linewidth=0.7)
        axes.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color("#bbbbbb")


def _mark_k2(axes: Any, drifts: Mapping[str, Drift], named: bool) -> None:
    for k2 in sorted({d.k2 for d in drifts.values()}):
        axes.axvline(k2, color=QUIET, linewidth=0.8, linestyle=":", zorder=0)
        if named:
            position = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top"}
            axes.annotate(f"k2 = {k2}", (k2, 1), (3, -4), fontsize=7.5, color=QUIET, **position)


def _labels(axes: Any, ends: Mapping[str, float]) -> None:
    """Write names at the lines' right ends, pushed apart where they would meet."""
    low, high = (math.log(y) for y in axes.get_ylim())
    heights = {name: (math.log(end) - low) / (high - low) for name, end in ends.items()}
    height = -math.inf
    for name in sorted(ends, key=lambda name: heights[name]):
        height = max(heights[name], height + APART)
        offset = {
            "xycoords": "axes fraction",
            "textcoords": "offset points",
            "va": "center",
            "annotation_clip": False,
        }
        colour = COLOURS[list(ends).index(name) % len(COLOURS)]
        axes.annotate(picture_files.label(name), (1, height), (6, 0), fontsize=8, color=colour, **offset)
