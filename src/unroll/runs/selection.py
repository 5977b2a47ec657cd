"""By which evaluations weights are chosen: those of the validation set, or of the test set where there is none.

What was chosen on the test set has a perplexity there that is too good, so everything that shows it says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from unroll.experiment.experiment import Experiment

LAST, BEST = "last", "best"
WEIGHTS = (LAST, BEST)
TEST_SET, VALIDATION_SET = "test set", "validation set"


class Point(NamedTuple):
    """An evaluation: the batch, and the perplexity that weights are chosen by."""

    batch: int
    perplexity: float


@dataclass(frozen=True)
class Best:
    """A run's best evaluation, under the scheme's own procedure."""

    batch: int
    perplexity: float  # of the set that it was chosen on
    chosen_on: str  # "validation set" or "test set"
    test_perplexity: float

    def __str__(self) -> str:
        beside = "" if self.chosen_on == TEST_SET else f", test set {self.test_perplexity:,.4f}"
        return f"batch {self.batch:,}, perplexity {self.perplexity:,.4f}, chosen on the {self.chosen_on}{beside}"


def chosen_on(experiment: Experiment) -> str:
    """The set whose perplexity chooses."""
    return VALIDATION_SET if experiment.validation or experiment.validation_file_sha256 else TEST_SET


def point_of(line: Mapping[str, Any], experiment: Experiment) -> Point:
    """What a line of metrics counts for; a perplexity too large for a float stands as null in the file."""
    part = "perplexity" if chosen_on(experiment) == TEST_SET else "validation"
    value = line.get(part, {}).get(experiment.scheme.sample)
    return Point(line["batch"], math.inf if value is None else float(value))


def history(lines: Iterable[Mapping[str, Any]], experiment: Experiment) -> list[Point]:
    """What each line counts for, in order."""
    return [point_of(line, experiment) for line in lines]


def lowest(points: Sequence[Point]) -> Point | None:
    """The first point of those with the lowest perplexity; None where none is finite."""
    finite = [point for point in points if math.isfinite(point.perplexity)]
    return min(finite, key=lambda point: point.perplexity, default=None)


def best(lines: Sequence[Mapping[str, Any]], experiment: Experiment) -> Best | None:
    """The best of a run's evaluations; None where there is none that is finite."""
    found = lowest(history(lines, experiment))
    return None if found is None else at_batch(lines, experiment, found.batch)


def at_batch(lines: Iterable[Mapping[str, Any]], experiment: Experiment, batch: int) -> Best | None:
    """The evaluation at one batch, as the best; None where there is none."""
    line = next((line for line in lines if line["batch"] == batch), None)
    if line is None:
        return None
    test = line["perplexity"].get(experiment.scheme.sample)
    score = point_of(line, experiment).perplexity
    return Best(batch, score, chosen_on(experiment), math.inf if test is None else float(test))
