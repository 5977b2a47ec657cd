"""Settings of one corpus compared: means over seeds, differences paired by seed, and how sure they are.

Perplexities are compared by their ratio, so everything here is in logarithms. Each setting has the same seeds, and a
seed begins with the same weights: a table of settings × seeds, read as a randomised block design. What is left of it
after the means of settings and of seeds is noise, one deviation for all settings of a corpus. A difference is told
apart where its interval, Student's at 95 % divided by the number of comparisons, leaves 0 out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from unroll.studies.beyond.records import Measured
from unroll.sweep.student import quantile

LEVEL = 0.05
PROCEDURES = ("windowed", "progressive")


class Best(NamedTuple):
    """A run at the point, and under the procedure, that its validation set chooses."""

    batch: int
    procedure: str
    perplexity: float  # of the test set


def best(run: Measured, procedures: Sequence[str] = PROCEDURES) -> Best | None:
    """The point with the lowest validation perplexity, among these procedures; None where none is a number."""
    found = [
        (value, index, procedure)
        for procedure in procedures
        for index, value in enumerate(run.points[f"validation_{procedure}"])
        if value is not None and run.points[procedure][index] is not None
    ]
    if not found:
        return None
    _, index, procedure = min(found)
    return Best(run.points["batch"][index], procedure, run.points[procedure][index])


@dataclass(frozen=True)
class Difference:
    """One setting's perplexity divided by another's, with its interval; no interval where one seed says nothing."""

    ratio: float
    low: float | None
    high: float | None

    @property
    def is_lower(self) -> bool:
        """Whether it is told apart, and lower."""
        return self.high is not None and self.high < 1

    @property
    def is_higher(self) -> bool:
        """Whether it is told apart, and higher."""
        return self.low is not None and self.low > 1


@dataclass(frozen=True)
class Comparison:
    """The settings of one corpus that have all seeds."""

    means: Mapping[str, float]  # of the logarithms
    seeds: int
    deviation: float | None  # of the noise; None with one seed or one setting
    freedom: int

    @property
    def names(self) -> list[str]:
        """The settings, lowest first."""
        return sorted(self.means, key=self.means.__getitem__)

    def mean(self, name: str) -> float:
        """The geometric mean over seeds."""
        return math.exp(self.means[name])

    def reach(self, comparisons: int) -> float | None:
        """How far a difference of logarithms may be from the truth, with this many of them looked at."""
        if self.deviation is None:
            return None
        share = 1 - LEVEL / max(1, comparisons) / 2
        return quantile(share, self.freedom) * self.deviation * math.sqrt(2 / self.seeds)

    def difference(self, name: str, other: str, comparisons: int) -> Difference:
        """One setting against another."""
        distance, reach = self.means[name] - self.means[other], self.reach(comparisons)
        if reach is None:
            return Difference(math.exp(distance), None, None)
        return Difference(math.exp(distance), math.exp(distance - reach), math.exp(distance + reach))


def compare(values: Iterable[tuple[str, int, float]]) -> Comparison:
    """From setting, seed and perplexity. A setting that lacks a seed that others have is left out."""
    table: dict[str, dict[int, float]] = {}
    for setting, seed, value in values:
        table.setdefault(setting, {})[seed] = math.log(value)
    seeds = sorted({seed for row in table.values() for seed in row})
    whole = {name: [row[seed] for seed in seeds] for name, row in table.items() if row.keys() == set(seeds)}
    means = {name: sum(row) / len(row) for name, row in whole.items()}
    freedom = (len(whole) - 1) * (len(seeds) - 1)
    if freedom <= 0:
        return Comparison(means, len(seeds), None, 0)
    mean = sum(means.values()) / len(means)
    of_seeds = [sum(row[n] for row in whole.values()) / len(whole) for n in range(len(seeds))]
    squares = sum(
        (value - means[name] - of_seeds[n] + mean) ** 2 for name, row in whole.items() for n, value in enumerate(row)
    )
    return Comparison(means, len(seeds), math.sqrt(squares / freedom), freedom)


def over_corpora(
    values: Mapping[tuple[str, str, int], float], name: str, other: str, comparisons: int
) -> Difference | None:
    """One setting against another over all corpora, from the values by setting, corpus and seed.

    Each corpus and seed is one pair, and all pairs weigh the same. None where fewer than two have both.
    """
    keys = [key[1:] for key in values if key[0] == name and (other, *key[1:]) in values]
    logs = [math.log(values[name, *key] / values[other, *key]) for key in keys]
    if len(logs) < 2:
        return None
    share = 1 - LEVEL / max(1, comparisons) / 2
    reach = quantile(share, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Difference(math.exp(fmean(logs)), math.exp(fmean(logs) - reach), math.exp(fmean(logs) + reach))
