"""A run's perplexity curve as a picture, in the paper's form: against train sequences, both axes logarithmic."""

from __future__ import annotations

from unroll.run import RunFolder

COLOURS = {"windowed": "#1f5fa8", "progressive": "#c2452d"}


def save(folder: RunFolder) -> None:
    """Draw perplexity.png into a run's folder, from its metrics alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    experiment, status, lines = folder.experiment, folder.status, folder.metrics
    figure = Figure(figsize=(7, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xscale="log", yscale="log")
    for procedure, colour in COLOURS.items():
        # A perplexity too large for a float stands as null in the metrics: it has no place on the picture either.
        points = [(m["sequences"], p) for m in lines if (p := m["perplexity"].get(procedure))]
        if points:
            axes.plot(
                *zip(*points, strict=True), color=colour, marker="o", markersize=3, linewidth=1.2, label=procedure
            )
    if status["state"] == "stopped":
        axes.axvline(max(status["batch"], 1) * experiment.rows, color="#888888", linestyle=":", label="stopped")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("train sequences")
    axes.set_ylabel("perplexity of the test set")
    axes.set_title(
        f"{experiment.title}: {experiment.cell} {experiment.layers} × {experiment.hidden}, {experiment.scheme}",
        fontsize=8,
        wrap=True,
    )
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(folder.path / "perplexity.png")
