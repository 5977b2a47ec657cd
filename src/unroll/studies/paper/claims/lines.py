"""Curves as the claims read them: perplexities by batch, the mean over seeds, and the measures on them.

Means of perplexities are geometric: the paper's axes are logarithmic, and a ratio is what it compares by eye.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from unroll.studies.paper.claims.thresholds import CLOSE, CORPUS_NAMES, WARM_UP
from unroll.studies.paper.claims.verdict import Measure, NotJudgedError, Records
from unroll.studies.paper.figures import K1
from unroll.studies.paper.records import Curve

Measures = tuple[Measure, ...]


def gmean(values: Iterable[float]) -> float:
    """Geometric mean."""
    logs = [math.log(value) for value in values]
    if not logs:
        raise NotJudgedError("the curves have no evaluation point to compare")
    return math.exp(sum(logs) / len(logs))


def mean(values: Iterable[float]) -> float:
    """Arithmetic mean."""
    every = list(values)
    return sum(every) / len(every)


def max_over_min(values: Iterable[float]) -> float:
    """The largest over the smallest."""
    every = list(values)
    return max(every) / min(every)


@dataclass(frozen=True)
class Line:
    """One curve, or the mean of several: columns by evaluation point."""

    batch: tuple[int, ...]
    perplexity: tuple[float, ...]
    loss: tuple[float | None, ...]
    seconds: tuple[float, ...]
    k1: int

    @property
    def best(self) -> float:
        """The lowest perplexity: what a user who stops in time gets. It leaves overfitting out (C8)."""
        return min(self.perplexity)

    @property
    def final(self) -> float:
        """The perplexity after the last batch."""
        return self.perplexity[-1]

    @property
    def turn(self) -> int:
        """The index of the lowest perplexity."""
        return self.perplexity.index(self.best)

    @property
    def by_batch(self) -> dict[int, float]:
        """Perplexity at each evaluation point."""
        return dict(zip(self.batch, self.perplexity, strict=True))

    @property
    def best_so_far(self) -> dict[int, float]:
        """The lowest perplexity up to each evaluation point: how far it has learnt."""
        lowest = math.inf
        by_batch = {}
        for batch, value in zip(self.batch, self.perplexity, strict=True):
            by_batch[batch] = lowest = min(lowest, value)
        return by_batch

    @property
    def rises(self) -> dict[int, float]:
        """The perplexity over the lowest so far, at each evaluation point: 1 where it falls."""
        lowest = self.best_so_far
        return {batch: value / lowest[batch] for batch, value in self.by_batch.items()}

    @property
    def detour(self) -> float:
        """The way of its logarithm down to its lowest, over the fall itself, less 1: 0 for a line that only falls."""
        logs = [math.log(value) for value in self.perplexity[: self.turn + 1]]
        fall = logs[0] - logs[-1]
        way = sum(abs(b - a) for a, b in pairwise(logs))
        return way / fall - 1 if fall > 0 else math.inf

    def needed(self, level: float, axis: Sequence[float]) -> float:
        """Where on an axis (batches, seconds) it first reaches a perplexity, between points on a logarithmic line."""
        for i, value in enumerate(self.perplexity):
            if value > level:
                continue
            if i == 0:
                return axis[0]
            above = self.perplexity[i - 1]
            part = 1.0
            if above > value:
                part = math.log(above / level) / math.log(above / value)
            return float(axis[i - 1] * (axis[i] / axis[i - 1]) ** part)
        return math.inf


def line_of(curve: Curve, grid: Sequence[int]) -> Line:
    """A curve as a line over a figure's evaluation points.

    Where a curve has no number, and after its run stopped, the model has lost everything: it counts as at its start.
    """
    start = next((value for _, _, value in curve.scored), None)
    if start is None:
        raise NotJudgedError(f"no perplexity is recorded for {curve.corpus}, scheme {curve.scheme}, k1 = {curve.k1}")
    points = curve.points
    gone = [batch for batch in grid if batch > points["batch"][-1]] if curve.state == "stopped" else []
    values = [start if value is None else value for value in points[curve.sample]]
    return Line(
        (*points["batch"], *gone),
        (*values, *[start] * len(gone)),
        (*points["loss"], *[None] * len(gone)),
        (*points["seconds"], *points["seconds"][-1:] * len(gone)),
        curve.k1,
    )


def average(lines: Sequence[Line]) -> Line:
    """The mean over seeds, at the points that all of them have."""
    shared = [batch for batch in lines[0].batch if all(batch in line.batch for line in lines)]
    indices = [[line.batch.index(batch) for line in lines] for batch in shared]
    losses = [[line.loss[i] for line, i in zip(lines, row, strict=True)] for row in indices]
    return Line(
        tuple(shared),
        tuple(gmean(line.perplexity[i] for line, i in zip(lines, row, strict=True)) for row in indices),
        tuple(
            None if None in of_point else mean(value for value in of_point if value is not None) for of_point in losses
        ),
        tuple(mean(line.seconds[i] for line, i in zip(lines, row, strict=True)) for row in indices),
        lines[0].k1,
    )


class Lines:
    """The curves of several figures, selected by their settings."""

    def __init__(self, records: Records, *figures: str) -> None:
        self.figures = figures
        self.curves = [curve for name in figures for curve in records[name].curves]
        self.grid = sorted({batch for curve in self.curves for batch in curve.points["batch"]})

    def curves_of(self, variant: Mapping[str, Any] | None = None, /, **what: Any) -> list[Curve]:
        """Every curve with these values, one for each seed; without a variant, of the paper's own settings."""
        by_seed = {}
        for curve in self.curves:
            if curve.variant == (variant or {}) and all(getattr(curve, name) == value for name, value in what.items()):
                by_seed[curve.series, curve.seed] = curve
        if not by_seed:
            wanted = ", ".join(f"{name} {value}" for name, value in {**what, **(variant or {})}.items())
            raise NotJudgedError(f"the records of {', '.join(self.figures)} have no curve with {wanted}")
        return sorted(by_seed.values(), key=lambda curve: (curve.series, curve.seed))

    def each(self, variant: Mapping[str, Any] | None = None, /, **what: Any) -> list[Line]:
        """Those curves as lines, one for each seed."""
        return [line_of(curve, self.grid) for curve in self.curves_of(variant, **what)]

    def one(self, variant: Mapping[str, Any] | None = None, /, **what: Any) -> Line:
        """Their mean over seeds; `what` must leave nothing else open."""
        return average(self.each(variant, **what))

    def over_k1(self, corpus: str, scheme: int) -> list[Line]:
        """The line of each k1 for a corpus and a scheme, r=1 γ=512 and k2 = 100."""
        return [self.one(corpus=corpus, scheme=scheme, layers=1, hidden=512, k1=k1, k2=100) for k1 in K1]


def turns(sides: Iterable[float]) -> float:
    """How far an order turns round among several ratios: the lesser of both sides; at 1 and below it does not."""
    every = list(sides)
    return min(max(every), 1 / min(every))


def by_corpus(asked: Callable[[str, float, float], Measure], values: Mapping[str, float], bound: float) -> Measures:
    """A measure for each data set, held to one bound."""
    return tuple(asked(CORPUS_NAMES[corpus], value, bound) for corpus, value in values.items())


def spread(lines: Sequence[Line], since: float = WARM_UP) -> float:
    """The largest over the smallest perplexity of several lines at one point, in the mean over points."""
    columns = [line.by_batch for line in lines]
    shared = [batch for batch in columns[0] if batch >= since and all(batch in column for column in columns)]
    return gmean(max_over_min(column[batch] for column in columns) for batch in shared)


def ratio(
    by_batch: dict[int, float], other: dict[int, float], since: float = WARM_UP, until: float = math.inf
) -> float:
    """The first perplexities over the others, by batch, in the mean over the points that both have."""
    return gmean(by_batch[batch] / other[batch] for batch in by_batch if batch in other and since <= batch <= until)


def common_level(*lines: Line) -> float:
    """A perplexity that all lines reach before they flatten: 1.1 × the best of the one that learns least."""
    return CLOSE * max(line.best for line in lines)


def unstable(line: Line, scheme1: Line | None, scheme3: Line | None = None, since: float = WARM_UP) -> list[int]:
    """The batches at which a line is unstable in the sense of the definition, without what others share with it.

    A point is unstable above 1.1 × the line's lowest so far. Where `scheme1` on the same data has risen too, that is
    overfitting and no fault of the scheme, and the bound is 1.1 × that rise. A point above 1.1 × scheme 3's at the same
    batch is unstable as well.
    """
    rises = scheme1.rises if scheme1 else {}
    third = scheme3.by_batch if scheme3 else {}
    batches = []
    for (batch, rise), value in zip(line.rises.items(), line.perplexity, strict=True):
        if batch >= since and (rise > CLOSE * rises.get(batch, 1.0) or value > CLOSE * third.get(batch, math.inf)):
            batches.append(batch)
    return batches
