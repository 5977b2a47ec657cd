"""What the curves of the runs say: final and best perplexity, at equal seconds, how they rise, and how a start matters.

All runs are read up to one batch, the last at which every run that did not diverge was scored. So the budgets are equal
in train sequences, whatever ended the training. At equal seconds a curve is read between two evaluations, on a line
from one to the other in the logarithms of time and perplexity.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unroll.base.errors import RunError
from unroll.experiment.experiment import Experiment
from unroll.runs import selection
from unroll.runs.folder import RunFolder
from unroll.sweep.deduplicate import Training


@dataclass(frozen=True)
class Point:
    """An evaluation of one run under one sampling procedure."""

    batch: int
    seconds: float  # of training, the run's share of its fleet
    test: float
    chosen: float  # the perplexity that chooses the best: of the validation set, where there is one
    carried: float | None  # from the states that training carries; the test set


@dataclass(frozen=True)
class Reading:
    """A run's curve under the procedure of one request, up to the common batch."""

    run: str
    experiment: Experiment  # as it was asked for
    state: str
    points: tuple[Point, ...]
    reason: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it can be compared: it came as far as all others, with finite perplexities at its end."""
        return self.state not in ("stopped", "failed") and bool(self.points) and math.isfinite(self.points[-1].test)

    @property
    def final(self) -> float:
        """The test set's perplexity at the common batch."""
        return self.points[-1].test if self.is_whole else math.inf

    @property
    def best(self) -> Point | None:
        """The point that the validation set, or the test set where there is none, chooses."""
        finite = [point for point in self.points if math.isfinite(point.chosen) and math.isfinite(point.test)]
        return min(finite, key=lambda point: point.chosen, default=None) if self.is_whole else None

    @property
    def rise(self) -> float:
        """The most by which its perplexity rose above its own minimum so far: 0.1 is a tenth above it."""
        lowest, worst = math.inf, 0.0
        for point in self.points:
            if lowest < math.inf:
                worst = max(worst, point.test / lowest - 1)
            lowest = min(lowest, point.test)
        return worst if self.state != "stopped" else math.inf

    @property
    def zero_over_carried(self) -> float | None:
        """The perplexity from zeros over that from carried states, at the end; None where no state is carried."""
        carried = self.points[-1].carried if self.points else None
        return self.points[-1].test / carried if carried else None

    def at(self, seconds: float) -> float:
        """The test set's perplexity after this much training."""
        if not self.is_whole or self.points[0].seconds > seconds:
            return math.inf
        n = bisect_left([point.seconds for point in self.points], seconds)
        if n == 0 or n == len(self.points):
            return self.points[min(n, len(self.points) - 1)].test
        before, after = self.points[n - 1], self.points[n]
        if min(before.seconds, before.test, after.test) <= 0 or not math.isfinite(before.test + after.test):
            return before.test
        span = math.log(after.seconds / before.seconds)
        share = math.log(seconds / before.seconds) / span if span else 0.0
        return math.exp((1 - share) * math.log(before.test) + share * math.log(after.test))


def read(
    trainings: Iterable[Training], folders: Mapping[str, RunFolder], failures: Mapping[str, str]
) -> tuple[list[Reading], int]:
    """A reading for every request, all up to one batch, and that batch; 0 where nothing was scored."""
    whole = [reading for training in trainings for reading in _of(training, folders[training.name], failures)]
    batches = [{point.batch for point in reading.points} for reading in whole if reading.is_whole]
    common = max(set.intersection(*batches), default=0) if batches else 0
    cut = [
        Reading(r.run, r.experiment, r.state, tuple(p for p in r.points if p.batch <= common), r.reason) for r in whole
    ]
    return cut, common


def equal_seconds(readings: Sequence[Reading]) -> float:
    """The training time that every run had."""
    return min((reading.points[-1].seconds for reading in readings if reading.is_whole), default=0.0)


def _of(training: Training, folder: RunFolder, failures: Mapping[str, str]) -> list[Reading]:
    try:
        status, lines = folder.status, folder.metrics
    except RunError as error:
        return [Reading(training.name, asked, "failed", (), " ".join(error.problems)) for asked in training.asked]
    failed = failures.get(training.name)
    return [
        Reading(
            training.name,
            asked,
            "failed" if failed and status["state"] not in ("finished", "stopped") else status["state"],
            tuple(_point(line, asked) for line in lines),
            failed or status.get("reason"),
        )
        for asked in training.asked
    ]


def _point(line: Mapping[str, Any], asked: Experiment) -> Point:
    carried = line.get("carried") if asked.scheme.carries and asked.scheme.sample == "progressive" else None
    test = _number(line["perplexity"].get(asked.scheme.sample))
    return Point(line["batch"], float(line["seconds"]), test, selection.point_of(line, asked).perplexity, carried)


def _number(perplexity: Any) -> float:
    """A perplexity too large for a float stands as null."""
    return math.inf if perplexity is None else float(perplexity)
