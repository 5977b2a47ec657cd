"""When does conditional training look unstable, and why? What the records of scheme 4 say (r=1 γ=512, k2 = 100).

At every evaluation point a conditional run is measured three times: the loss of its training, a mean over the batches
since the last point; and the perplexity of the test set at that moment, read progressively from a state of zeros, as
the scheme asks, and from the states that the rows of training carry. If training were unstable, the third would rise
with the second, and over a long time the first too. If the model only did not know what to do with a state of zeros,
the second alone would rise, and it would stop once training has begun from zeros again: with the reset at an epoch's
end.

A curve's *rise* is how many times its lowest value so far it reaches, at most. It counts from batch 100 on, since
Adam's first steps throw every run about, and up to the lowest point of that same curve, since what rises behind it is
overfitting; or it is a state of zeros that has gone bad for good, which the ratio of the two starts shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unroll.studies.paper.claims.lines import gmean
from unroll.studies.paper.claims.thresholds import CLOSE, CORPUS_NAMES, WARM_UP
from unroll.studies.paper.claims.verdict import Records, Table, table
from unroll.studies.paper.figures import BEST
from unroll.studies.paper.pictures import SETTINGS
from unroll.studies.paper.records import CARRIED, Curve

# Batches since training last began from zeros: at once, within the shortest epoch but Music's, and beyond.
SINCE = ((1, 100), (100, 300), (300, 1000), (1000, math.inf))
ABOUT = (
    "A conditional run is scored from a state of zeros, as scheme 4 samples, and from the states that its training "
    "carries, the median over its 64 rows; its loss is the mean over the batches since the point before. A rise is the "
    "most times its lowest so far that a curve stands at, from batch 100 on; that of a perplexity up to that curve's "
    "own lowest point, in every row alike. What rises behind that is overfitting, or a state of zeros that has gone "
    "bad for good: the last column shows the second. “Rises” counts the runs with one above 1.1."
)
BY_RUN = "Run by run"
RESETS = ("as in the paper", "never reset", "never reset, read on", "reset at random")


@dataclass(frozen=True)
class Reading:
    """One conditional run."""

    curve: Curve
    loss: float  # the rise of e^loss in training, over all batches
    zero: float  # the rise of the perplexity from zeros
    carried: float | None  # the rise of the perplexity from carried states, where that was scored
    best: tuple[float, float | None]  # the lowest perplexity from zeros and from carried states
    apart: Mapping[int, float]  # by batch: perplexity from zeros over that from carried states

    @property
    def widest(self) -> int | None:
        """The batch at which zeros and carried states are furthest apart."""
        return max(self.apart, key=self.apart.__getitem__) if self.apart else None

    def since_zero(self, batch: int) -> int:
        """Batches since training last began from zeros, under a reset each epoch; an epoch's last batch counts all."""
        epoch = self.curve.epoch or self.curve.batches
        return (batch - 1) % epoch + 1


def readings(records: Records) -> list[Reading]:
    """Every conditional run of the architecture that the paper goes on with, once."""
    by_identity = {c.identity: c for name in ("schemes", "extras") if name in records for c in records[name].curves}
    chosen = [
        c for c in by_identity.values() if c.train == "conditional" and (c.layers, c.hidden) in BEST and c.k2 == 100
    ]
    return [reading(curve) for curve in sorted(chosen, key=lambda c: (c.corpus, c.k1, c.seed)) if curve.points["batch"]]


def reading(curve: Curve) -> Reading:
    """Measure one run. Where there is no number it was not finite, so it counts as infinite."""
    points = curve.points
    batches = points["batch"]
    zero = _numbers(points["progressive"])
    carried = _numbers(points[CARRIED]) if CARRIED in points else None
    pairs = zip(batches, zero, carried, strict=True) if carried else ()
    return Reading(
        curve,
        _rise(batches, [math.exp(loss) for loss in _numbers(points["loss"])], batches[-1]),
        _rise(batches, zero, batches[_lowest(zero)]),
        _rise(batches, carried, batches[_lowest(carried)]) if carried else None,
        (min(zero), min(carried) if carried else None),
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


def every_table(every_run: Sequence[Reading]) -> dict[str, Table]:
    """All tables by title, the one that answers fastest first."""
    return {
        "By setting": by_setting(every_run),
        "What each setting reaches": by_corpus(every_run),
        "By how long ago training began from zeros": by_reset(every_run),
        "By how the state is reset": by_epochs(every_run),
        BY_RUN: by_run(every_run),
    }


def by_setting(every_run: Iterable[Reading]) -> Table:
    """The effect of each change to scheme 4."""
    rows = []
    for name, runs in _of_settings(every_run).items():
        scored = [r for r in runs if r.apart]
        rows.append(
            (
                name,
                len(runs),
                _count(r.loss for r in runs),
                _count(r.zero for r in runs),
                _count(r.carried for r in scored if r.carried) if scored else None,
                round(max(r.zero for r in runs), 3),
                round(max(max(r.apart.values()) for r in scored), 3) if scored else None,
            )
        )
    columns = (
        "scheme 4", "runs", "training loss rises", "rises from zeros", "rises from carried states",
        "largest rise from zeros", "zeros / carried, largest",
    )  # fmt: skip
    return table(columns, rows)


def by_run(every_run: Iterable[Reading]) -> Table:
    """The paper's own setting, run by run."""
    rows = []
    for r in _of_settings(every_run).get("as in the paper", []):
        c = r.curve
        widest = r.widest
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
                round(r.apart[widest], 3) if widest else None,
                widest,
                round(widest / c.epoch, 2) if widest and c.epoch else None,
            )
        )
    columns = (
        "data set", "k1", "seed", "epochs", "rise of e^loss", "rise from zeros", "rise from carried",
        "zeros / carried, largest", "at batch", "after epochs",
    )  # fmt: skip
    return table(columns, rows)


def by_corpus(every_run: Iterable[Reading]) -> Table:
    """The best perplexities of each setting, mean over k1, in the seeds that all settings have."""
    by_setting_name = _of_settings(every_run)
    seeds = (
        set.intersection(*({r.curve.seed for r in runs} for runs in by_setting_name.values()))
        if by_setting_name
        else set()
    )
    rows = []
    for name, runs in by_setting_name.items():
        cells: list[float | None] = []
        for corpus in CORPUS_NAMES:
            both = [r.best for r in runs if r.curve.corpus == corpus and r.curve.seed in seeds]
            for values in ([zero for zero, _ in both], [carried for _, carried in both if carried]):
                cells.append(round(gmean(values), 3) if values else None)
        rows.append((name, *cells))
    starts = [start for name in CORPUS_NAMES.values() for start in (f"{name}, from zeros", "from carried")]
    return table(("best perplexity", *starts), rows)


def by_epochs(every_run: Iterable[Reading]) -> Table:
    """How far apart zeros and carried states are at most, for every data set and k1, by how the state is reset."""
    groups = scored_by_reset(every_run)
    cells: dict[tuple[str, int], dict[str, list[float]]] = {}
    epochs: dict[tuple[str, int], float] = {}
    for name, runs in groups.items():
        for r in runs:
            key = r.curve.corpus, r.curve.k1
            cells.setdefault(key, {}).setdefault(name, []).append(max(r.apart.values()))
            if r.curve.epoch:
                epochs[key] = round(r.curve.batches / r.curve.epoch, 1)
    rows = [
        (
            CORPUS_NAMES[corpus],
            k1,
            epochs.get((corpus, k1)),
            *(round(max(by_name[name]), 3) if name in by_name else None for name in groups),
        )
        for (corpus, k1), by_name in sorted(cells.items())
    ]
    return table(("zeros / carried, largest", "k1", "epochs", *groups), rows)


def by_reset(every_run: Iterable[Reading]) -> Table:
    """How far apart they are in the paper's own setting, by how long ago training began from zeros."""
    bins: dict[tuple[bool, int], list[float]] = {}
    for r in _of_settings(every_run).get("as in the paper", []):
        for batch, value in r.apart.items() if r.curve.epoch else ():
            since = r.since_zero(batch)
            index = next(n for n, (low, high) in enumerate(SINCE) if low <= since < high)
            bins.setdefault((batch > (r.curve.epoch or 0), index), []).append(value)
    rows = []
    for (later, index), values in sorted(bins.items()):
        low, high = SINCE[index]
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


def _of_settings(every_run: Iterable[Reading]) -> dict[str, list[Reading]]:
    by_setting_name: dict[str, list[Reading]] = {}
    for r in every_run:
        name = next((name for name, variant in SETTINGS.items() if variant == r.curve.variant), "")
        by_setting_name.setdefault(name, []).append(r)
    return {name: by_setting_name[name] for name in SETTINGS if name in by_setting_name}


def scored_by_reset(every_run: Iterable[Reading]) -> dict[str, list[Reading]]:
    """The runs that were scored from carried states too, by how their state is reset."""
    groups = _of_settings(every_run)
    scored = {name: [r for r in groups.get(name, []) if r.apart] for name in RESETS}
    return {name: runs for name, runs in scored.items() if runs}


def _count(rises: Iterable[float]) -> int:
    return sum(value > CLOSE for value in rises)
