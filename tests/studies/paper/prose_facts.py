"""What sentences of docs/paper.md read from the records, and how numbers are written there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paths import ROOT
from sentences import WORDS

from unroll.studies.paper import instability, records
from unroll.studies.paper.claims import judge, whole
from unroll.studies.paper.claims.lines import Lines
from unroll.studies.paper.claims.verdict import Verdict
from unroll.studies.paper.figures import CORPORA, RANDOM_RESET
from unroll.studies.paper.instability import Reading

TEXTS = CORPORA[:3]
NEVER, READ_ON, RANDOM = {"reset": "never"}, {"reset": "never", "rotation": "continue"}, {"reset": RANDOM_RESET}
SHUFFLED = {"shuffle": True}
BIASED = {"forget_bias": 5.0}


class Said(str):
    """A number that nobody measured here: a setting, a threshold, or one of the paper's own."""


def said(*numbers: str) -> list[str]:
    return [Said(number) for number in numbers]


def word(number: int) -> str:
    return WORDS[number]


def percent(ratio: float, digits: int = 0) -> str:
    """How far a ratio is from 1."""
    return f"{abs(100 * (ratio - 1)):.{digits}f}"


def ends(values: Iterable[float], digits: int = 0) -> list[str]:
    """The smallest and the largest, rounded."""
    every = sorted(values)
    return [f"{every[0]:.{digits}f}", f"{every[-1]:.{digits}f}"]


def both_ends(values: Iterable[float]) -> tuple[float, float]:
    every = sorted(values)
    return every[0], every[-1]


def thousands(number: float) -> str:
    return f"{number:,.0f}"


def none_or(count: int) -> str:
    return "none" if count == 0 else str(count)


def rounded_up(logarithm: float) -> float:
    """Per cent, rounded up to a tenth: within this."""
    return math.ceil(1000 * (math.exp(logarithm) - 1)) / 10


@dataclass(frozen=True)
class Facts:
    """The records, and what several sentences read from them."""

    measured: dict[str, records.Record]
    again: dict[str, records.Record]

    @classmethod
    def of_the_repository(cls) -> Facts:
        folder = ROOT / "results" / "paper"
        return cls(records.read(folder), records.read(folder / "again"))

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        return {each.claim: each for each in judge(self.measured)}

    @cached_property
    def verdicts_again(self) -> dict[str, Verdict]:
        return {each.claim: each for each in judge(self.again)}

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.measured, "schemes")

    @cached_property
    def k2(self) -> Lines:
        return Lines({"k2": whole("k2", self.measured["k2"])}, "k2")

    @cached_property
    def runs(self) -> list[Reading]:
        return instability.readings(self.measured)

    def of(self, variant: dict[str, Any]) -> list[Reading]:
        return [run for run in self.runs if run.curve.variant == variant]

    def evidence(self, claim: str) -> dict[object, tuple[Any, ...]]:
        return {row[0]: row for row in self.verdicts[claim].evidence.rows}

    def best(self, corpus: str, scheme: int, k1: int, seed: int) -> float:
        return self.lines.each(corpus=corpus, scheme=scheme, k1=k1, seed=seed)[0].best

    def random_over(self, scheme: int, corpus: str) -> dict[int, float]:
        """The best perplexity with random resets over a scheme's in the same seed, by k1."""
        return {
            run.curve.k1: run.best[0] / self.best(corpus, scheme, run.curve.k1, run.curve.seed)
            for run in self.of(RANDOM)
            if run.curve.corpus == corpus
        }

    def alone(self, name: str) -> int:
        """How many claims have this verdict by the numbers alone."""
        return sum(each.verdict_alone == name for each in self.verdicts.values())
