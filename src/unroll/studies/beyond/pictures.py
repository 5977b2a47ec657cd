"""The study's figures, drawn from the records in the paper's manner.

weights.png     perplexity by the number of scored positions, with the decays as lines; read windowed
states.png      perplexity by where a window's first state comes from, under both procedures
positions.png   scheme 4: the excess of zeros over carried states, by position in the test set
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.runs.curve import thousands
from unroll.studies.beyond import tables
from unroll.studies.beyond.comparing import PROCEDURES, Comparison, best
from unroll.studies.beyond.parts import K2, K3, LEARNED, NARROWEST, PARTS, ZERO
from unroll.studies.beyond.records import Measured
from unroll.studies.paper.claims.thresholds import CORPUS_NAMES
from unroll.studies.paper.pictures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WIDTH,
    plain,
    written,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF_K3 = {1: NARROWEST, **{k3: f"multi-loss,k3={k3}" for k3 in K3}, K2: LEARNED}
DECAYS = {"multi-loss,decay=linear": ("linear", GREEN), "multi-loss,decay=exponential": ("exponential", VERMILION)}
STATES = (LEARNED, ZERO, *(setting.name for setting in PARTS["states"].settings if setting.name != ZERO))
SHORT = {
    LEARNED: "learned",
    ZERO: "zeros",
    "conditional": "epoch",
    **{f"conditional,reset={reset}": str(reset) for reset in ("never", 0.01, 0.1, 0.5)},
}
RESET = {"conditional": "each epoch"}
ENDS = (200, 500, 1000, 2000, 5000, 10_000)  # of the bins by position
COLOURS = dict(zip(STATES[2:], (INK, BLUE, ORANGE, VERMILION, PURPLE), strict=True))


def save(measured: tables.Records, folder: Path) -> list[Path]:
    """Draw what the records hold; return the files."""
    weights = tables.runs_of(measured, ("weights",))
    states = tables.runs_of(measured, ("weights", "states"))
    carrying = tables.carrying(measured)
    paths = []
    if {run.setting for run in weights} >= {NARROWEST, LEARNED}:
        paths.append(written(lambda: draw_weights(weights), folder / "weights.png"))
    if {run.setting for run in states} >= set(STATES):
        paths.append(written(lambda: draw_states(states), folder / "states.png"))
    if carrying:
        paths.append(written(lambda: draw_positions(carrying), folder / "positions.png"))
    return paths


def draw_weights(runs: Sequence[Measured]) -> Figure:
    """One panel a corpus: the mean over seeds against k3, each with the range of its seeds."""
    every = tables.comparisons(runs)

    def panel(axes: Any, corpus: str) -> None:
        one, values = every[corpus], _values(runs, corpus)
        shown = {k3: name for k3, name in OF_K3.items() if name in one.means}
        axes.plot(list(shown), [one.mean(name) for name in shown.values()], color=BLUE, lw=1.3, marker="o", ms=3.5)
        for k3, name in shown.items():
            axes.plot([k3, k3], [min(values[name]), max(values[name])], color=BLUE, lw=0.8)
        for name, (label, colour) in DECAYS.items():
            if name in one.means:
                axes.axhline(one.mean(name), color=colour, lw=1.1, linestyle="--", label=f"{label} decay")
                axes.axhspan(min(values[name]), max(values[name]), color=colour, alpha=0.12, lw=0)
        axes.set_xscale("log")
        axes.set_xticks(list(OF_K3), [str(k3) for k3 in OF_K3])
        axes.minorticks_off()

    labels = ("k3: how many of the last positions carry a loss", "perplexity of the test set")
    return _four(every, panel, "Which positions carry a loss: mean and range of the seeds", labels)


def draw_states(runs: Sequence[Measured]) -> Figure:
    """One panel a corpus: every origin of the first state, under each way of reading."""
    every = tables.comparisons(runs)
    ways: dict[str, tuple[str, str, float]] = {
        "windowed": ("o", BLUE, -0.2),
        "progressive": ("s", VERMILION, 0.0),
        "carried": ("^", GREEN, 0.2),
    }

    def panel(axes: Any, corpus: str) -> None:
        for place, name in enumerate(STATES):
            group = [run for run in runs if run.setting == name and run.corpus == corpus]
            for way, (marker, colour, shift) in ways.items():
                values = [value for run in group if (value := _at_best(run, way)) is not None]
                if values:
                    label = {"progressive": "progressive, from its first state", "carried": "from carried states"}
                    axes.plot(
                        [place + shift] * len(values), values, marker=marker, ms=3.2, lw=0, color=colour, alpha=0.85,
                        label=label.get(way, way) if name == STATES[2] else None,
                    )  # fmt: skip
        axes.axvline(1.5, color=GREY, lw=0.6, linestyle=":")
        axes.set_xticks(range(len(STATES)), [SHORT[name] for name in STATES])

    labels = ("first state; right of the line it is carried, and reset so", "perplexity of the test set")
    return _four(
        every,
        panel,
        "Where a window's first state comes from: every seed, at the point that its validation set chooses",
        labels,
    )


def draw_positions(carrying: Mapping[str, Sequence[Measured]]) -> Figure:
    """One panel a corpus: nats a token that zeros cost beyond carried states, where they cost most."""
    corpora = {run.corpus: None for runs in carrying.values() for run in runs}

    def panel(axes: Any, corpus: str) -> None:
        for name, runs in carrying.items():
            for run in (run for run in runs if run.corpus == corpus):
                point, bins = tables.widest(run), run.by_position
                if point is None or bins is None or None in bins["zero"][point]:
                    continue
                ends = [first + tokens for first, tokens in zip(bins["from"], bins["tokens"], strict=True)]
                excess = [z - c for z, c in zip(bins["zero"][point], bins["carried"][point], strict=True)]
                axes.plot(
                    ends, excess, color=COLOURS.get(name, SKY), lw=0.9, marker=".", ms=3,
                    label=f"reset: {RESET.get(name, SHORT[name])}" if run.seed == runs[0].seed else None,
                )  # fmt: skip
        axes.axhline(0, color=GREY, lw=0.6)
        axes.set_xscale("log")
        axes.set_xticks(ENDS, [thousands(end) for end in ENDS])
        axes.minorticks_off()

    labels = ("tokens read since zeros (end of the bin)", "nats a token above carried states")
    title = "Scheme 4 from zeros, by position in the test set: the point of each run where it costs most"
    return _four(corpora, panel, title, labels)


def _values(runs: Sequence[Measured], corpus: str) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for run in runs:
        value = tables.as_trained(run)
        if run.corpus == corpus and value is not None:
            values.setdefault(run.setting, []).append(value)
    return values


def _at_best(run: Measured, way: str) -> float | None:
    """The test perplexity at the point that the validation set chooses, under the run's own procedure."""
    own = best(run, (way,) if way in PROCEDURES else ("progressive",))
    if own is None:
        return None
    value: float | None = run.points[way][run.points["batch"].index(own.batch)]
    return value


def _four(
    corpora: Mapping[str, Comparison | None], panel: Callable[[Any, str], None], title: str, labels: tuple[str, str]
) -> Figure:
    """Draw a panel for each corpus, two by two, each on axes of its own."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 6.2), dpi=150)
    FigureCanvasAgg(figure)
    every_axes = list(figure.subplots(2, 2, squeeze=False).ravel())
    for axes, corpus in zip(every_axes, corpora, strict=False):
        panel(axes, corpus)
        plain(axes)
        axes.set_title(CORPUS_NAMES[corpus], fontsize=8.5, loc="left", color=INK)
        axes.tick_params(axis="both", which="both", labelsize=7.5, colors=INK, length=2, color="#bbbbbb")
        axes.set_xlabel(labels[0], fontsize=7.5, color=INK)
        axes.set_ylabel(labels[1], fontsize=7.5, color=INK)
    for axes in every_axes[len(corpora) :]:
        axes.set_axis_off()
    handles, named = every_axes[0].get_legend_handles_labels()
    if named:
        figure.legend(
            handles, named, loc="upper center", bbox_to_anchor=(0.5, 0.96), ncols=len(named), frameon=False,
            fontsize=7.5, labelcolor=INK,
        )  # fmt: skip
    figure.subplots_adjust(0.085, 0.085, 0.985, 0.885, wspace=0.2, hspace=0.4)
    figure.suptitle(title, fontsize=9.5, color=INK, y=0.985, va="top")
    return figure
