"""The records as one picture: a row a question, two panels each.

Lines are means over seeds, bands go from the lowest seed to the highest. The same records give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from traits.measures import share_copied
from traits.plan import OF_SCHEMES
from traits.records import SCHEMES, Records, Run
from unroll.base import picture_files
from unroll.studies.paper.pictures import BLUE, GREEN, INK, ORANGE, SCHEME_COLOURS, VERMILION, WIDTH, plain

NAME = "schemes-traits.png"
PANEL = 2.35  # inches
TRAINING_COLOURS = {"multi-loss": BLUE, "single-loss": GREEN, "conditional": ORANGE, "zero start": VERMILION}
STEP = 5  # distances that are averaged to one point of a line: a single one has few answers
_PLAIN = FuncFormatter(lambda value, _: f"{value:,g}".replace("-", "−"))
Lines = Sequence[tuple[Sequence[float], Sequence[float]]]


def save(records: Records, path: Path) -> None:
    """Draw the rows for which there are records."""
    corpora = records.corpora[:2]
    windows = sorted({run["k2"] for run in records.copy})[:2]
    rows: list[tuple[Callable[..., None], Sequence[Any]]] = [
        row for row in ((_position, corpora), (_copy, windows), (_start, corpora), (_recovery, corpora)) if row[1]
    ]

    def drawn() -> Figure:
        height = PANEL * len(rows)
        figure = Figure(figsize=(WIDTH, height), dpi=150)
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(rows), 2, squeeze=False)
        for (draw, columns), pair in zip(rows, panels, strict=True):
            for axes, column in zip(pair, columns, strict=False):
                _plain(axes)
                draw(axes, records, column)
                axes.legend(frameon=False, fontsize=6, labelcolor=INK)
            for axes in pair[len(columns) :]:
                axes.set_axis_off()
        # Positions are fixed, not fitted, so that they depend on nothing.
        figure.subplots_adjust(0.085, 0.42 / height, 0.99, 1 - 0.25 / height, wspace=0.2, hspace=0.5)
        return figure

    picture_files.save(drawn, path, metadata={"Software": None})


def _position(axes: Any, records: Records, corpus: str) -> None:
    for training in OF_SCHEMES:
        runs = records.seeds("text", corpus=corpus, training=training)
        lines = [(range(1, len(run["positions"]) + 1), _floats(run["positions"])) for run in runs]
        _line(axes, lines, TRAINING_COLOURS[training], training)
    _logarithmic(axes)
    _mark(axes, records)
    _words(axes, f"{_title(records, corpus)}: by position", "tokens read since the start", "nats a token")


def _copy(axes: Any, records: Records, k2: int) -> None:
    for scheme, (training, procedure) in SCHEMES.items():
        lines = [_shares(run, procedure) for run in records.seeds("copy", k2=k2, training=training)]
        _line(axes, lines, SCHEME_COLOURS[scheme], f"scheme {scheme}")
    axes.axvline(k2, color=INK, linewidth=0.6, linestyle=":")
    axes.set_ylim(-0.15, 1.05)
    _words(axes, f"Copy source, k2 = {k2}: by distance", "tokens from the symbol to its answer", "share copied")


def _shares(run: Run, procedure: str) -> tuple[list[float], list[float]]:
    """The share copied, a point for every few neighbouring distances."""
    groups: dict[int, list[tuple[int, float]]] = {}
    for distance, nats in run["nll"][procedure].items():
        groups.setdefault((int(distance) - 1) // STEP, []).append((run["answers"][distance], *_floats([nats])))
    x = [STEP * group + (STEP + 1) / 2 for group in sorted(groups)]
    means = [sum(a * nats for a, nats in groups[g]) / sum(a for a, _ in groups[g]) for g in sorted(groups)]
    return x, [float(share_copied(mean, run["symbols"])) for mean in means]


def _start(axes: Any, records: Records, corpus: str) -> None:
    """Draw the difference, seed by seed: the curves themselves would hide it."""
    learned, zero = (records.seeds("text", corpus=corpus, training=t) for t in ("multi-loss", "zero start"))
    lines = []
    for one, other in zip(learned, zero, strict=False):
        theirs = {batch: windowed for batch, windowed, _ in other["curve"]}
        both = [(b, w, theirs[b]) for b, w, _ in one["curve"] if w and theirs.get(b)]
        lines.append(([b for b, _, _ in both], [math.log(z / w) for _, w, z in both]))
    _line(axes, lines, TRAINING_COLOURS["zero start"], "zero start less learned start")
    axes.axhline(0, color=INK, linewidth=0.6)
    _logarithmic(axes)
    _words(axes, f"{_title(records, corpus)}: learned against zero start", "batches", "difference, nats a token")


def _recovery(axes: Any, records: Records, corpus: str) -> None:
    for training in OF_SCHEMES:
        for procedure, style in (("progressive", "-"), ("windowed", ":")):
            runs = records.seeds("text", corpus=corpus, training=training)
            lines = [_octaves(_floats(run["excess"][procedure])) for run in runs]
            label = training if procedure == "progressive" else ""
            _line(axes, lines, TRAINING_COLOURS[training], label, style)
    axes.axhline(0, color=INK, linewidth=0.6)
    _logarithmic(axes)
    # Nearly all of the excess comes right after the wrong token; what is left later is small, and not always above 0.
    axes.set_yscale("symlog", linthresh=0.01)
    axes.yaxis.set_major_locator(FixedLocator([0, 0.01, 0.1, 1]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(_PLAIN)
    _mark(axes, records)
    _words(
        axes,
        f"{_title(records, corpus)}: after a wrong token; dotted: windowed",
        "tokens after it",
        "excess, nats a token",
    )


def _octaves(excess: Sequence[float]) -> tuple[list[float], list[float]]:
    """Means over distances that grow with the distance, three a doubling: single ones far away are all noise."""
    edges = sorted({round(2 ** (i / 3)) for i in range(3 * 20)})
    bins = [(a, min(b, len(excess) + 1)) for a, b in pairwise(edges) if a <= len(excess)]
    return [math.sqrt(a * (b - 1)) for a, b in bins], [sum(excess[a - 1 : b - 1]) / (b - a) for a, b in bins]


def _line(axes: Any, lines: Lines, colour: str, label: str, style: str = "-") -> None:
    """Draw the mean of the seeds in a band, at the points that all of them have."""
    if not lines:
        return
    each = [dict(zip(x, y, strict=True)) for x, y in lines]
    x = sorted(set.intersection(*(set(one) for one in each)))
    values = [[points[position] for points in each] for position in x]
    axes.plot(x, [sum(v) / len(v) for v in values], color=colour, linewidth=1.0, label=label or None, linestyle=style)
    if len(lines) > 1:
        axes.fill_between(x, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.15, linewidth=0)


def _mark(axes: Any, records: Records) -> None:
    axes.axvline(records.heads[0]["settings"]["k2"], color=INK, linewidth=0.6, linestyle=":")


def _logarithmic(axes: Any) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1,)))
    axes.xaxis.set_major_formatter(_PLAIN)
    axes.xaxis.set_minor_formatter(NullFormatter())


def _plain(axes: Any) -> None:
    plain(axes)
    axes.yaxis.set_major_formatter(_PLAIN)
    axes.tick_params(axis="both", which="both", labelsize=7, colors=INK, length=2, color="#bbbbbb")


def _words(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=8, loc="left", color=INK)
    axes.set_xlabel(x, fontsize=7, color=INK)
    axes.set_ylabel(y, fontsize=7, color=INK)


def _title(records: Records, corpus: str) -> str:
    return str(records.seeds("text", corpus=corpus)[0]["title"])


def _floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
