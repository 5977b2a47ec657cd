"""The picture of `instability.py`: two runs measured in three ways, and how far apart zeros and carried states are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.studies.paper.claims.thresholds import CORPUS_NAMES, WARM_UP
from unroll.studies.paper.instability import Reading, scored_by_reset
from unroll.studies.paper.pictures import CORPUS_COLOURS, GREEN, GREY, INK, VERMILION, WIDTH, plain, written
from unroll.studies.paper.records import CARRIED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TWO = ("as in the paper", "never reset")  # the settings whose worst run is shown in full


def save(every_run: Sequence[Reading], folder: Path) -> Path | None:
    """Draw FOLDER/instability.png, or return None where nothing was scored from carried states."""
    if not any(r.apart for r in every_run):
        return None
    return written(lambda: draw(every_run), folder / "instability.png")


def draw(every_run: Sequence[Reading]) -> Figure:
    """Draw the least stable runs with resets and without in three measures, then every run by its kind of reset."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = scored_by_reset(every_run)
    worst = {name: max(groups[name], key=lambda r: max(r.apart.values())) for name in TWO if name in groups}
    panels = len(worst) + len(groups)
    rows = math.ceil(panels / 2)
    height = 2.6 * rows + 0.35
    figure = Figure(figsize=(WIDTH, height), dpi=150)
    FigureCanvasAgg(figure)
    every_axes = list(figure.subplots(rows, 2, squeeze=False).ravel())
    for axes, (name, widest) in zip(every_axes, worst.items(), strict=False):
        _three(axes, name, widest)
    values = [value for runs in groups.values() for r in runs for value in r.apart.values()]
    for axes, (name, runs) in zip(every_axes[len(worst) :], groups.items(), strict=False):
        _apart(axes, name, runs, (min(0.95, *values), max(1.2, 1.05 * max(values))))
    for axes in every_axes[panels:]:
        axes.set_axis_off()
    figure.subplots_adjust(0.075, 0.42 / height, 0.985, 1 - 0.28 / height, wspace=0.2, hspace=0.42)
    return figure


def _three(axes: Any, name: str, r: Reading) -> None:
    """Training loss, and the test set read from zeros and from carried states."""
    points = r.curve.points
    c = r.curve
    shown = [i for i, batch in enumerate(points["batch"]) if batch >= WARM_UP]
    values = {
        "test set from zeros": (points["progressive"], VERMILION, 1.4),
        "test set from carried states": (points[CARRIED], GREEN, 1.4),
        "training, e^loss": ([math.exp(loss) for loss in points["loss"]], GREY, 1.0),
    }
    for label, (column, colour, width) in values.items():
        axes.plot([points["batch"][i] for i in shown], [column[i] for i in shown], color=colour, lw=width, label=label)
    axes.set_yscale("log")
    resets = int(c.batches // c.epoch) if c.epoch and not c.variant else 0
    for n in range(1, resets + 1):
        axes.axvline(n * (c.epoch or 0), color=GREY, linestyle=":", linewidth=0.7)
    title = f"{name[0].upper()}{name[1:]}: {CORPUS_NAMES[c.corpus]}, k1 = {c.k1}, one run"
    _dress(axes, title, "batch; dotted: resets" if resets else "batch", "perplexity")
    axes.legend(frameon=False, fontsize=7, labelcolor=INK)


def _apart(axes: Any, name: str, runs: Sequence[Reading], limits: tuple[float, float]) -> None:
    """Draw the ratio of the perplexities from zeros and from carried states, against epochs read."""
    named = []
    for r in runs:
        x = [batch / (r.curve.epoch or r.curve.batches) for batch in r.apart]
        label = CORPUS_NAMES[r.curve.corpus] if r.curve.corpus not in named else None
        named.append(r.curve.corpus)
        axes.plot(x, list(r.apart.values()), color=CORPUS_COLOURS[r.curve.corpus], lw=0.9, alpha=0.85, label=label)
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    axes.axvline(1, color=GREY, linestyle=":", linewidth=0.8)
    _dress(axes, f"{name[0].upper()}{name[1:]}: every run", "epochs", "from zeros / from carried states")
    axes.legend(frameon=False, fontsize=7, labelcolor=INK)


def _dress(axes: Any, title: str, x: str, y: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1,), numticks=12))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 3, 5), numticks=12))
    plain(axes)
    axes.tick_params(axis="both", which="both", labelsize=7.5, colors=INK, length=2, color="#bbbbbb")
    axes.set_title(title, fontsize=8.5, loc="left", color=INK)
    axes.set_xlabel(x, fontsize=8, color=INK)
    axes.set_ylabel(y, fontsize=8, color=INK)
