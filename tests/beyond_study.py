"""What sentences about the study beyond the paper read from its records, and how numbers are written there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from statistics import geometric_mean

from paths import ROOT

from unroll.studies.beyond import records, split_tables, tables
from unroll.studies.beyond.comparing import Comparison, Difference, over_corpora
from unroll.studies.beyond.parts import LEARNED
from unroll.studies.beyond.records import Measured

FOLDER = ROOT / "results" / "beyond"
NEVER, SELDOM, OFTEN, HALF = (f"conditional,reset={reset}" for reset in ("never", 0.01, 0.1, 0.5))
RANDOM = (SELDOM, OFTEN, HALF)
EPOCH = tables.SCHEME_4
GAPS = f"{LEARNED} k1=200"
LINEAR, EXPONENTIAL = "multi-loss,decay=linear", "multi-loss,decay=exponential"
TEXTS = ("english", "finnish", "linux")


def said(*numbers: str) -> list[str]:
    """Settings, thresholds and counts that are no measurement."""
    return list(numbers)


def share(ratio: float, digits: int = 1) -> str:
    """How far a ratio is from 1, in per cent; below 1 with a minus."""
    return f"{100 * (ratio - 1):.{digits}f}".replace("-", "−")


def shares(ratios: Iterable[float]) -> list[str]:
    """The smallest and the largest."""
    every = sorted(ratios)
    return [share(every[0]), share(every[-1])]


class Study:
    """The records, and what several sentences read from them."""

    def __init__(self) -> None:
        self.measured = records.read(FOLDER)
        self.runs = tables.runs_of(self.measured, tables.PLANE)

    @cached_property
    def plane(self) -> dict[str, Comparison]:
        return tables.comparisons(self.runs)

    @cached_property
    def scores(self) -> split_tables.Scores:
        return split_tables.split_scores(self.measured)

    def of(self, setting: str, corpus: str | None = None) -> list[Measured]:
        return [run for run in self.runs if run.setting == setting and corpus in (None, run.corpus)]

    def over(self, setting: str, corpus: str, base: str = LEARNED) -> Difference:
        """As the table of the plane has it."""
        one = self.plane[corpus]
        return one.difference(setting, base, len(one.means) - 1)

    def is_apart(self, setting: str, corpus: str) -> bool:
        found = self.over(setting, corpus)
        return found.is_lower or found.is_higher

    def end(self, setting: str, corpus: str, column: str = "windowed") -> float:
        """After the last batch, mean over seeds."""
        return geometric_mean(run.points[column][-1] for run in self.of(setting, corpus))

    def pooled(self, setting: str, base: str, comparisons: int) -> Difference:
        """Over the four data sets."""
        values = {(r.setting, r.corpus, r.seed): value for r in self.runs if (value := tables.as_trained(r))}
        found = over_corpora(values, setting, base, comparisons)
        assert found is not None
        return found

    def read_on(self, setting: str) -> list[float]:
        """Each run's progressive perplexity over its windowed one, after the last batch."""
        return [run.points["progressive"][-1] / run.points["windowed"][-1] for run in self.of(setting)]

    def excess(self, setting: str) -> list[float]:
        """Zeros over carried states, from batch 100 on, of all points of all runs."""
        return [value for run in self.of(setting) for value in tables.apart(run).values()]

    def left_after(self, setting: str, index: int) -> list[float]:
        """What is left of the excess after a prefix, run by run."""
        found = [(run, tables.widest(run)) for run in self.of(setting)]
        return [tables.after_prefix(run, point)[index] for run, point in found if point is not None]

    def by_bin(self, setting: str, corpus: str) -> list[list[float]]:
        """Nats a token above carried states, by bin, run by run."""
        rows = []
        for run in self.of(setting, corpus):
            point, bins = tables.widest(run), run.by_position
            assert point is not None
            assert bins is not None
            rows.append([z - c for z, c in zip(bins["zero"][point], bins["carried"][point], strict=True)])
        return rows

    def worst_batch(self, setting: str, corpora: Iterable[str]) -> float:
        return max(max(tables.rises(run)) for corpus in corpora for run in self.of(setting, corpus))

    def norm(self, setting: str) -> float:
        row = next(row for row in tables.spikes(self.measured).rows if row[0] == tables.words(setting))
        return float(row[-1])
