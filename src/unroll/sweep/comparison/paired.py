"""Which setting is best, and how sure that is, when each was trained with the same few seeds.

The same seed begins with the same weights and reads the same batches, so settings are compared seed by seed: the mean
of the differences of log perplexities, by Student's t. `sure` is 1 less the chance with which two equal settings differ
as much, in either direction. A winner is claimed where that is 95 % or more against every other setting. The best was
picked by looking; that needs no stricter level, since of several equal settings the best two lie closer together than
any two do: over simulated comparisons of 2 to 12 equal settings a winner is claimed in 5 of 100 or fewer.

    >>> (first, second) = ranked({"a": {0: 5.0, 1: 5.2, 2: 5.1}, "b": {0: 6.0, 1: 6.3, 2: 6.1}})
    >>> first.name, second.name, second.sure is not None and second.sure > 0.99
    ('a', 'b', True)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from unroll.sweep.answers import LEVEL, Interval
from unroll.sweep.student import distribution, quantile

Name = TypeVar("Name", bound=Hashable)
LARGEST = 700.0  # of a logarithm whose number a float holds
METHOD = (
    "Means over seeds are geometric, with Student's interval at 95 %. Differences are paired by seed: the same seed "
    "begins with the same weights. How sure: 1 less the chance with which equal settings differ as much; "
    "a winner is claimed from 95 % on."
)


@dataclass(frozen=True)
class Placed(Generic[Name]):
    """A setting in its place among the others."""

    name: Name
    perplexity: Interval | None  # None where no seed has a finite one
    seeds: int
    missing: int  # seeds without a finite perplexity
    ratio: Interval | None  # to the first, paired by seed; None for the first itself
    sure: float | None  # that the first is better; None for the first, and where fewer than two seeds are shared

    @property
    def is_apart(self) -> bool:
        """Whether the first is better than this one beyond what seeds do."""
        return self.sure is not None and self.sure >= 1 - LEVEL


def ranked(of_settings: Mapping[Name, Mapping[int, float]]) -> list[Placed[Name]]:
    """The settings from the best mean to the worst, from each one's perplexity by seed.

    A setting that lacks a seed which others have, since a run diverged, stands behind all that have every one.
    """
    logs = {name: {seed: math.log(p) for seed, p in by.items() if 0 < p < math.inf} for name, by in of_settings.items()}
    every = {seed for by in of_settings.values() for seed in by}
    names = sorted(logs, key=lambda name: (len(every - logs[name].keys()), mean(logs[name].values())))
    first = logs[names[0]] if names else {}
    placed = []
    for name in names:
        values = list(logs[name].values())
        shared = [logs[name][seed] - first[seed] for seed in sorted(logs[name].keys() & first.keys())]
        is_first = name == names[0]
        placed.append(
            Placed(
                name,
                interval(values) if values else None,
                len(values),
                len(every) - len(values),
                interval(shared) if shared and not is_first else None,
                None if is_first else sure(shared),
            )
        )
    return placed


def has_winner(placed: Sequence[Placed[Name]]) -> bool:
    """Whether the first is better than every other beyond what seeds do."""
    return len(placed) > 1 and all(other.is_apart for other in placed[1:])


def tied(placed: Sequence[Placed[Name]]) -> list[Placed[Name]]:
    """Those that cannot be told apart from the first."""
    return [other for other in placed[1:] if not other.is_apart]


def sure(differences: Sequence[float]) -> float | None:
    """How sure it is that the mean of these is no accident; None where fewer than two say nothing of it.

    >>> sure([0.1, 0.1, 0.1]), sure([0.1, -0.1]), sure([0.1])
    (1.0, 0.0, None)
    """
    count = len(differences)
    if count < 2:
        return None
    middle, spread = mean(differences), deviation(differences)
    if spread == 0:
        return 1.0 if middle else 0.0
    t = abs(middle) / (spread / math.sqrt(count))
    return max(0.0, 2 * distribution(t, count - 1) - 1) if t else 0.0


def interval(logs: Sequence[float], level: float = LEVEL) -> Interval:
    """The geometric mean, and Student's interval around it."""
    middle, count = mean(logs), len(logs)
    if count < 2:
        return Interval(exp(middle), None, None)
    reach = quantile(1 - level / 2, count - 1) * deviation(logs) / math.sqrt(count)
    return Interval(exp(middle), exp(middle - reach), exp(middle + reach))


def geometric(values: Iterable[float]) -> float:
    """The geometric mean of what is finite; infinite where nothing is."""
    return exp(mean([math.log(value) for value in values if 0 < value < math.inf]))


def mean(values: Iterable[float]) -> float:
    """The mean; infinite where there is nothing."""
    every = list(values)
    return sum(every) / len(every) if every else math.inf


def deviation(values: Sequence[float]) -> float:
    """The standard deviation, from two values on; that of equal values is exactly 0."""
    if len(set(values)) == 1:
        return 0.0
    middle = mean(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1))


def exp(logarithm: float) -> float:
    """The number with this logarithm, and never an overflow."""
    return math.inf if logarithm == math.inf else math.exp(min(logarithm, LARGEST))
