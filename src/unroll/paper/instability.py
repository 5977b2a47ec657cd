"""When does conditional training look unstable, and why? What the records of scheme 4 say (r=1 γ=512, k2 = 100).

At every evaluation point a conditional run is measured three times: the loss of its training, a mean over the batches
since the last point, and at that moment the perplexity of the test set, read progressively from a state of zeros, as
the scheme asks, and from the states that the rows of training carry. If training were unstable, the third would rise
with the second, and if for long, the first too. If the model only did not know what to do with a state of zeros, the
second alone would, and it would stop once training has begun from zeros again: with the reset at an epoch's end.

A curve's *rise* is the most times its lowest so far that it stands at, from batch 100 on, before which Adam's first
steps throw every run about, and up to the lowest point of the curve from carried states, since what rises behind that
is overfitting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.paper.claims.lines import gmean
from unroll.paper.claims.verdict import Records, Table, table
from unroll.paper.claims.words import CLOSE, CORPUS_NAMES, WARM_UP
from unroll.paper.figures import BEST
from unroll.paper.pictures import CORPUS_COLOURS, GREEN, GREY, INK, SETTINGS, VERMILION, WIDTH, plain, written
from unroll.paper.records import CARRIED, Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Batches since training last began from zeros: at once, within the shortest epoch but Music's, and beyond.
SINCE = ((1, 100), (100, 300), (300, 1000), (1000, math.inf))
ABOUT = (
    "A conditional run is scored from a state of zeros, as scheme 4 samples, and from the states that its training "
    "carries; its loss is the mean over the batches since the point before. A rise is the most times its lowest so far "
    "that a curve stands at, from batch 100 on; that of a perplexity up to its best point, since what rises behind "
    "that is overfitting. “Rises” counts the runs with one above 1.1."
)
PANELS = ("as in the paper", "never reset", "never reset, read on", "reset at random")


@dataclass(frozen=True)
class Reading:
    """One conditional run."""

    curve: Curve
    loss: float  # the rise of e^loss in training, over all batches
    zero: float  # the rise of the perplexity from zeros
    carried: float | None  # the same from carried states, where that was scored
    apart: Mapping[int, float]  # by batch: perplexity from zeros over that from carried states

    @property
    def worst(self) -> int | None:
        """The batch at which the two are furthest apart."""
        return max(self.apart, key=self.apart.__getitem__) if self.apart else None

    def since_zero(self, batch: int) -> int:
        """Batches since training last began from zeros, under a reset each epoch: after the last of one, all of it."""
        epoch = self.curve.epoch or self.curve.batches
        return (batch - 1) % epoch + 1


def readings(records: Records) -> list[Reading]:
    """Every conditional run of the architecture that the paper goes on with, once."""
    every = {c.identity: c for name in ("schemes", "extras") if name in records for c in records[name].curves}
    chosen = [c for c in every.values() if c.train == "conditional" and (c.layers, c.hidden) in BEST and c.k2 == 100]
    return [reading(curve) for curve in sorted(chosen, key=lambda c: (c.corpus, c.k1, c.seed)) if curve.points["batch"]]


def reading(curve: Curve) -> Reading:
    """What is measured on one run. Where there is no number it was not finite: above anything."""
    points = curve.points
    batches, zero = points["batch"], _numbers(points["progressive"])
    carried = _numbers(points[CARRIED]) if CARRIED in points else None
    best = batches[_lowest(carried or zero)]
    pairs = zip(batches, zero, carried, strict=True) if carried else ()
    return Reading(
        curve,
        _rise(batches, [math.exp(loss) for loss in _numbers(points["loss"])], batches[-1]),
        _rise(batches, zero, best),
        _rise(batches, carried, best) if carried else None,
        {batch: a / b for batch, a, b in pairs if batch >= WARM_UP and math.isfinite(a / b)},
    )


def _numbers(column: Sequence[float | None]) -> list[float]:
    return [math.inf if value is None else value for value in column]


def _lowest(values: Sequence[float]) -> int:
    return min(range(len(values)), key=values.__getitem__)


def _rise(batches: Sequence[int], values: Sequence[float], until: int) -> float:
    lowest, most = math.inf, 1.0
    for batch, value in zip(batches, values, strict=True):
        if WARM_UP <= batch <= until and math.isfinite(lowest):
            most = max(most, value / lowest)
        lowest = min(lowest, value)
    return most


# --- tables ---------------------------------------------------------------------------------------------------------


def by_setting(found: Iterable[Reading]) -> Table:
    """What each change to scheme 4 does to it."""
    rows = []
    for name, own in _of_settings(found).items():
        scored = [r for r in own if r.apart]
        rows.append(
            (
                name,
                len(own),
                _count(r.loss for r in own),
                _count(r.zero for r in own),
                _count(r.carried for r in scored if r.carried) if scored else None,
                round(max(r.zero for r in own), 3),
                round(max(max(r.apart.values()) for r in scored), 3) if scored else None,
                round(gmean(gmean(r.apart.values()) for r in scored), 4) if scored else None,
            )
        )
    columns = (
        "scheme 4", "runs", "training loss rises", "rises from zeros", "rises from carried states",
        "largest rise from zeros", "zeros / carried, largest", "zeros / carried, mean",
    )  # fmt: skip
    return table(columns, rows)


def by_run(found: Iterable[Reading]) -> Table:
    """The paper's own setting, run by run."""
    rows = []
    for r in _of_settings(found).get("as in the paper", []):
        c, worst = r.curve, r.worst
        epochs = c.batches / c.epoch if c.epoch else None
        rows.append(
            (
                CORPUS_NAMES[c.corpus],
                c.k1,
                c.seed,
                round(epochs, 1) if epochs else None,
                round(r.loss, 3),
                round(r.zero, 3),
                round(r.carried, 3) if r.carried else None,
                round(r.apart[worst], 3) if worst else None,
                worst,
                round(worst / c.epoch, 2) if worst and c.epoch else None,
            )
        )
    columns = (
        "data set", "k1", "seed", "epochs", "rise of e^loss", "rise from zeros", "rise from carried",
        "zeros / carried, largest", "at batch", "after epochs",
    )  # fmt: skip
    return table(columns, rows)


def by_reset(found: Iterable[Reading]) -> Table:
    """The paper's own setting: how far apart, by how long ago training began from zeros."""
    bins: dict[tuple[bool, int], list[float]] = {}
    for r in _of_settings(found).get("as in the paper", []):
        for batch, value in r.apart.items() if r.curve.epoch else ():
            since = r.since_zero(batch)
            place = next(n for n, (low, high) in enumerate(SINCE) if low <= since < high)
            bins.setdefault((batch > (r.curve.epoch or 0), place), []).append(value)
    rows = []
    for (later, place), values in sorted(bins.items()):
        low, high = SINCE[place]
        words = f"{low:,} to {high - 1:,}" if math.isfinite(high) else f"{low:,} and more"
        apart = sum(value > CLOSE for value in values)
        rows.append(
            (
                "later" if later else "before the first reset",
                words,
                len(values),
                round(gmean(values), 4),
                round(max(values), 3),
                apart,
            )
        )
    columns = ("", "batches since zeros", "points", "zeros / carried, mean", "largest", f"points above {CLOSE:g}")
    return table(columns, rows)


def _of_settings(found: Iterable[Reading]) -> dict[str, list[Reading]]:
    every: dict[str, list[Reading]] = {}
    for r in found:
        every.setdefault(next((name for name, own in SETTINGS.items() if own == r.curve.variant), ""), []).append(r)
    return {name: every[name] for name in SETTINGS if name in every}


def _count(rises: Iterable[float]) -> int:
    return sum(value > CLOSE for value in rises)


# --- picture --------------------------------------------------------------------------------------------------------


def save(found: Sequence[Reading], folder: Path) -> Path | None:
    """Draw FOLDER/instability.png; None where nothing was scored from carried states."""
    if not any(r.apart for r in found):
        return None
    return written(draw(found), folder / "instability.png")


def draw(found: Sequence[Reading]) -> Figure:
    """The run that looks least stable, measured in three ways; then every run, by how its state is reset."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = {name: [r for r in own if r.apart] for name, own in _of_settings(found).items() if name in PANELS}
    groups = {name: groups[name] for name in PANELS if groups.get(name)}
    rows = math.ceil((1 + len(groups)) / 2)
    height = 2.6 * rows + 0.35
    figure = Figure(figsize=(WIDTH, height), dpi=150)
    FigureCanvasAgg(figure)
    every = list(figure.subplots(rows, 2, squeeze=False).ravel())
    paper = [r for own in groups.values() for r in own if not r.curve.variant] or found
    _three(every[0], max((r for r in paper if r.apart), key=lambda r: max(r.apart.values())))
    top = max(value for own in groups.values() for r in own for value in r.apart.values())
    for axes, (name, own) in zip(every[1:], groups.items(), strict=False):
        _apart(axes, name, own, top)
    for axes in every[1 + len(groups) :]:
        axes.set_axis_off()
    figure.subplots_adjust(0.075, 0.42 / height, 0.985, 1 - 0.28 / height, wspace=0.2, hspace=0.42)
    return figure


def _three(axes: Any, r: Reading) -> None:
    """Training loss, and the test set read from zeros and from carried states."""
    points, c = r.curve.points, r.curve
    shown = [i for i, batch in enumerate(points["batch"]) if batch >= WARM_UP]
    values = {
        "test set from zeros": (points["progressive"], VERMILION, 1.4),
        "test set from carried states": (points[CARRIED], GREEN, 1.4),
        "training, e^loss": ([math.exp(loss) for loss in points["loss"]], GREY, 1.0),
    }
    for name, (column, colour, width) in values.items():
        axes.plot([points["batch"][i] for i in shown], [column[i] for i in shown], color=colour, lw=width, label=name)
    axes.set_yscale("log")
    for n in range(1, int(c.batches // c.epoch) + 1 if c.epoch else 1):
        axes.axvline(n * (c.epoch or 0), color=GREY, linestyle=":", linewidth=0.7)
    _dress(
        axes, f"{CORPUS_NAMES[c.corpus]}, k1 = {c.k1}: one run, three measures", "batch; dotted: resets", "perplexity"
    )
    axes.legend(frameon=False, fontsize=7, labelcolor=INK)


def _apart(axes: Any, name: str, own: Sequence[Reading], top: float) -> None:
    """How many times the perplexity from carried states that from zeros is, against epochs read."""
    seen = []
    for r in own:
        x = [batch / (r.curve.epoch or r.curve.batches) for batch in r.apart]
        label = CORPUS_NAMES[r.curve.corpus] if r.curve.corpus not in seen else None
        seen.append(r.curve.corpus)
        axes.plot(x, list(r.apart.values()), color=CORPUS_COLOURS[r.curve.corpus], lw=0.9, alpha=0.85, label=label)
    axes.set_ylim(min(0.95, *(v for r in own for v in r.apart.values())), max(1.2, top * 1.05))
    axes.axvline(1, color=GREY, linestyle=":", linewidth=0.8)
    _dress(axes, name[0].upper() + name[1:], "epochs", "from zeros / from carried states")
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
