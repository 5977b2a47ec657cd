"""A run's perplexity curve as a picture, in the paper's form: against train sequences, both axes logarithmic."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unroll.base import picture_files
from unroll.experiment.experiment import Experiment
from unroll.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"windowed": "#1f5fa8", "progressive": "#c2452d"}
NAME = "perplexity.png"
TITLE = 100  # characters a line


def save(folder: RunFolder) -> None:
    """Draw perplexity.png into a run's folder, from its metrics alone."""
    picture_files.save(lambda: draw(folder), folder.path / NAME)


def problem_saving(folder: RunFolder) -> str | None:
    """Draw the picture, or say why it cannot be drawn: a run that has ended is not lost for a picture."""
    try:
        save(folder)
    except Exception as error:
        return f"The run is saved, but has no picture of its curve. {error}"
    return None


def draw(folder: RunFolder) -> Figure:
    """Draw the curve as a figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    _plot(folder.experiment, folder.status, folder.metrics, figure.add_subplot())
    return figure


def plot(
    experiment: Experiment, status: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], axes: Axes | None = None
) -> Axes:
    """The curve on axes; without any on a new figure, as a notebook shows it."""
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")[1]
    _plot(experiment, status, lines, axes)
    axes.title.set_parse_math(False)  # a `$` in a name is no formula
    return axes


def _plot(experiment: Experiment, status: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    for procedure, colour in COLOURS.items():
        # A perplexity too large for a float stands as null in the metrics: it is not in the picture either.
        points = [(m["sequences"], p) for m in lines if (p := m["perplexity"].get(procedure))]
        if points:
            axes.plot(
                *zip(*points, strict=True), color=colour, marker="o", markersize=3, linewidth=1.2, label=procedure
            )
    if status["state"] == "stopped":
        axes.axvline(max(status["batch"], 1) * experiment.rows, color="#888888", linestyle=":", label="stopped")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("train sequences")
    axes.set_ylabel("perplexity of the test set")
    model = f"{experiment.cell} {experiment.layers} × {experiment.hidden}"
    # matplotlib does not wrap it: while wrapping it takes a `$` for a formula, whatever it is asked to do.
    title = textwrap.fill(f"{picture_files.label(experiment.title)}: {model}, {experiment.scheme}", TITLE)
    axes.set_title(title, fontsize=8)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)


def thousands(value: float) -> str:
    """64, 1k, 200k, 1M: shorter than the number in full, and no formula."""
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"
