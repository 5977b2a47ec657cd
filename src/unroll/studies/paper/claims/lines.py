"""Curves as the claims read them: perplexities by batch, the mean over seeds, and what is measured on them.

Means of perplexities are geometric: the paper's axes are logarithmic, and a ratio is what it compares by eye.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from unroll.studies.paper.claims.thresholds import CLOSE, WARM_UP
from unroll.studies.paper.claims.verdict import NotJudgedError, Records
from unroll.studies.paper.records import Curve


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


def between(values: Iterable[float]) -> float:
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
        """The lowest perplexity: what a user who stops in time gets, so that overfitting is told apart (C8)."""
        return min(self.perplexity)

    @property
    def final(self) -> float:
        """The perplexity after the last batch."""
        return self.perplexity[-1]

    @property
    def turn(self) -> int:
        """The place of the lowest perplexity."""
        return self.perplexity.index(self.best)

    @property
    def by_batch(self) -> dict[int, float]:
        """Perplexity at each evaluation point."""
        return dict(zip(self.batch, self.perplexity, strict=True))

    @property
    def best_so_far(self) -> dict[int, float]:
        """The lowest perplexity up to each evaluation point: how far it has learnt."""
        lowest, found = math.inf, {}
        for batch, value in zip(self.batch, self.perplexity, strict=True):
            found[batch] = lowest = min(lowest, value)
        return found

    @property
    def rises(self) -> dict[int, float]:
        """How many times its lowest so far it stands at: 1 where it falls."""
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
            above, part = self.perplexity[i - 1], 1.0
            if above > value:
                part = math.log(above / level) / math.log(above / value)
            return float(axis[i - 1] * (axis[i] / axis[i - 1]) ** part)
        return math.inf


def line(curve: Curve, grid: Sequence[int]) -> Line:
    """A curve's own perplexities on a figure's evaluation points.

    Where there is no number, and from where a run stopped, the model has lost all: it counts as at its start.
    """
    start = next((value for _, _, value in curve.own), None)
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
    """The mean over seeds, at the points that all have."""
    shared = [batch for batch in lines[0].batch if all(batch in own.batch for own in lines)]
    places = [[own.batch.index(batch) for own in lines] for batch in shared]
    losses = [[own.loss[i] for own, i in zip(lines, place, strict=True)] for place in places]
    return Line(
        tuple(shared),
        tuple(gmean(own.perplexity[i] for own, i in zip(lines, place, strict=True)) for place in places),
        tuple(None if None in here else mean(value for value in here if value is not None) for here in losses),
        tuple(mean(own.seconds[i] for own, i in zip(lines, place, strict=True)) for place in places),
        lines[0].k1,
    )


class Lines:
    """The curves of some figures, to be asked for by what they are."""

    def __init__(self, records: Records, *figures: str) -> None:
        self.figures = figures
        self.curves = [curve for name in figures for curve in records[name].curves]
        self.grid = sorted({batch for curve in self.curves for batch in curve.points["batch"]})

    def curves_of(self, variant: Mapping[str, Any] | None = None, /, **what: Any) -> list[Curve]:
        """Every curve with these values, one for each seed; of the paper's own settings unless a variant is named."""
        found = {}
        for curve in self.curves:
            if curve.variant == (variant or {}) and all(getattr(curve, name) == own for name, own in what.items()):
                found[curve.series, curve.seed] = curve
        if not found:
            wanted = ", ".join(f"{name} {value}" for name, value in {**what, **(variant or {})}.items())
            raise NotJudgedError(f"the records of {', '.join(self.figures)} have no curve with {wanted}")
        return sorted(found.values(), key=lambda curve: (curve.series, curve.seed))

    def each(self, variant: Mapping[str, Any] | None = None, /, **what: Any) -> list[Line]:
        """Those curves as lines, one for each seed."""
        return [line(curve, self.grid) for curve in self.curves_of(variant, **what)]

    def one(self, variant: Mapping[str, Any] | None = None, /, **what: Any) -> Line:
        """Their mean over seeds: `what` leaves nothing else open."""
        return average(self.each(variant, **what))


def after(by_batch: dict[int, float], batch: float = WARM_UP) -> list[float]:
    """The values from a batch on."""
    return [value for own, value in by_batch.items() if own >= batch]


def spread(lines: Sequence[Line], since: float = WARM_UP) -> float:
    """The largest over the smallest perplexity of several lines at one point, in the mean over points."""
    columns = [own.by_batch for own in lines]
    shared = [batch for batch in columns[0] if batch >= since and all(batch in column for column in columns)]
    return gmean(between(column[batch] for column in columns) for batch in shared)


def ratio(own: dict[int, float], other: dict[int, float], since: float = WARM_UP, until: float = math.inf) -> float:
    """How many times the other's perplexities by batch its own are, in the mean over the points that both have."""
    return gmean(own[batch] / other[batch] for batch in own if batch in other and since <= batch <= until)


def common_level(*lines: Line) -> float:
    """A perplexity that all of them reach before they flatten: 1.1 × the best of the one that learns least."""
    return CLOSE * max(own.best for own in lines)


def unstable(own: Line, beside: Line | None, scheme3: Line | None = None, since: float = WARM_UP) -> list[int]:
    """The batches at which a line is unstable, in the sense of the definition, but for what others share with it.

    Above 1.1 × its lowest so far; where `beside` (scheme 1 on the same data) has risen too, which is overfitting and
    no fault of the scheme, above 1.1 × that rise. Or above 1.1 × scheme 3's at the same batch.
    """
    theirs = beside.rises if beside else {}
    third = scheme3.by_batch if scheme3 else {}
    found = []
    for (batch, rise), value in zip(own.rises.items(), own.perplexity, strict=True):
        if batch >= since and (rise > CLOSE * theirs.get(batch, 1.0) or value > CLOSE * third.get(batch, math.inf)):
            found.append(batch)
    return found
