"""A claim of the paper, and what the records say about it: data, to and from JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from unroll.studies.paper.records import Record

HOLDS, IN_PART, FAILS, OPEN, NOT_JUDGED = "holds", "holds in part", "does not hold", "cannot be told", "not judged"
VERDICTS = (HOLDS, IN_PART, FAILS, OPEN, NOT_JUDGED)

SEVERAL, BORROWED, UNKNOWN = "seeds", "similar runs", "one seed"  # how intervals are known

Records = Mapping[str, Record]
Cell = str | float | int | None


class NotJudgedError(Exception):
    """The records do not say; why, in words."""


@dataclass(frozen=True)
class Measure:
    """A number that a part turns on, where the paper would have it, and how far another seed might move it."""

    name: str  # of what: a data set, a scheme, a plot
    value: float
    low: float | None = None  # inside from here, ends included
    high: float | None = None  # to here
    is_ratio: bool = True  # compared in its logarithm; else a count, a share or a difference, compared as it is
    is_clock: bool = False  # read once from a clock: taken as it is
    reach: float | None = None  # half of its interval, on the scale that it is compared on; None where not known

    @property
    def scaled(self) -> float:
        """The value on the scale that it is compared on."""
        return self._scale(self.value)

    def _scale(self, value: float) -> float:
        return value if not self.is_ratio else math.log(value) if value > 0 else -math.inf

    @property
    def is_inside_alone(self) -> bool:
        """Whether the number itself lies where it should, whatever another seed might have given."""
        return (self.low is None or self.value >= self.low) and (self.high is None or self.value <= self.high)

    @property
    def is_inside(self) -> bool | None:
        """The same of its whole interval; None where that lies on both sides, or is not known."""
        if self.is_clock:
            return self.is_inside_alone
        if self.reach is None:
            return None
        low = -math.inf if self.low is None else self._scale(self.low)
        high = math.inf if self.high is None else self._scale(self.high)
        begin, end = self.scaled - self.reach, self.scaled + self.reach
        if begin >= low and end <= high:
            return True
        return False if end < low or begin > high else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of its interval, as values."""
        if self.reach is None:
            return None
        begin, end = self.scaled - self.reach, self.scaled + self.reach
        return (math.exp(min(begin, 700.0)), math.exp(min(end, 700.0))) if self.is_ratio else (begin, end)


def at_most(name: str, value: float, bound: float, is_ratio: bool = True) -> Measure:
    """A number that must not be above the bound."""
    return Measure(name, value, None, bound, is_ratio)


def at_least(name: str, value: float, bound: float, is_ratio: bool = True) -> Measure:
    """A number that must not be below the bound."""
    return Measure(name, value, bound, None, is_ratio)


def below(name: str, value: float, bound: float, is_ratio: bool = True) -> Measure:
    """A number that must be below the bound."""
    return Measure(name, value, None, math.nextafter(bound, -math.inf), is_ratio)


def above(name: str, value: float, bound: float, is_ratio: bool = True) -> Measure:
    """A number that must be above the bound."""
    return Measure(name, value, math.nextafter(bound, math.inf), None, is_ratio)


@dataclass(frozen=True)
class Part:
    """One thing that a claim says: numbers, where they should lie, and how many of them must lie there."""

    says: str  # in the paper's sense, short
    measures: tuple[Measure, ...]
    measured: str
    threshold: str
    needed: int | None = None  # how many measures must be inside at least; all unless given
    most: int | None = None  # and at most
    known_from: str = ""  # how the intervals are known: see `certainty`

    @property
    def held(self) -> bool | None:
        """Whether the part holds, by the intervals; None where it cannot be told."""
        inside = [measure.is_inside for measure in self.measures]
        surely, perhaps = sum(each is True for each in inside), sum(each is None for each in inside)
        fewest, most = self._asked()
        if surely >= fewest and surely + perhaps <= most:
            return True
        return False if surely + perhaps < fewest or surely > most else None

    @property
    def held_alone(self) -> bool:
        """Whether it holds by the numbers alone, as if no other seed could have given others."""
        inside = sum(measure.is_inside_alone for measure in self.measures)
        fewest, most = self._asked()
        return fewest <= inside <= most

    @property
    def intervals(self) -> str:
        """The intervals that decide it, in words; empty where all its numbers are a clock's."""
        if all(measure.is_clock for measure in self.measures):
            return ""
        ends = [
            f"{measure.name} {measure.interval[0]:.3f} to {measure.interval[1]:.3f}"
            for measure in self.measures
            if measure.interval
        ]
        if not ends:
            return "One seed: cannot be told."
        borrowed = "; one seed, with the spread of similar runs" if self.known_from == BORROWED else ""
        return f"Intervals: {', '.join(ends)}{borrowed}."

    def _asked(self) -> tuple[int, int]:
        count = len(self.measures)
        return count if self.needed is None else self.needed, count if self.most is None else self.most


@dataclass(frozen=True)
class Table:
    """Numbers behind a verdict."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Table:
    """Make a table of rows."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows))


@dataclass(frozen=True)
class Finding:
    """The result of judging a claim: its parts, each held or not, and the numbers behind them."""

    parts: tuple[Part, ...]
    table: Table
    note: str = ""  # what a reader should know beside the thresholds


@dataclass(frozen=True)
class Claim:
    """What the paper says, which figures' records decide it, and how."""

    id: str
    words: str
    needs: tuple[str, ...]
    judge: Callable[[Records], Finding]


@dataclass(frozen=True)
class Verdict:
    """A claim judged."""

    claim: str
    words: str
    verdict: str
    measured: str  # a sentence or several, with numbers; why, where not judged
    threshold: str
    figures: tuple[str, ...]  # whose records are the evidence
    parts: tuple[Part, ...] = ()
    evidence: Table = Table((), ())

    @property
    def verdict_alone(self) -> str:
        """The verdict by the numbers alone, as if no other seed could have given others."""
        return decide([part.held_alone for part in self.parts]) if self.parts else self.verdict

    @property
    def possible(self) -> tuple[str, ...]:
        """The verdicts that the open parts leave; one where they leave no choice."""
        turned = product(*[[part.held] if part.held is not None else [True, False] for part in self.parts])
        left = {decide(held) for held in turned} if self.parts else {self.verdict}
        return tuple(name for name in VERDICTS if name in left)

    def to_json(self) -> dict[str, Any]:
        """As plain data, with whether each part holds, and its intervals in words."""
        content = asdict(self)
        for part, of_json in zip(self.parts, content["parts"], strict=True):
            of_json |= {"held": part.held, "intervals": part.intervals}
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Verdict:
        """From what `to_json` gave, before or after a trip through a file."""
        evidence = content["evidence"]
        return cls(
            **{
                **content,
                "figures": tuple(content["figures"]),
                "parts": tuple(_part(part) for part in content["parts"]),
                "evidence": table(evidence["columns"], evidence["rows"]),
            }
        )


def _part(content: Mapping[str, Any]) -> Part:
    fields = {name: value for name, value in content.items() if name not in ("held", "intervals")}
    return Part(**{**fields, "measures": tuple(Measure(**measure) for measure in content["measures"])})


def decide(held: Iterable[bool | None]) -> str:
    """One rule for all claims: all parts held, some, or none; and open where that turns on parts that are open."""
    every = list(held)
    known = {each for each in every if each is not None}
    if known == {True, False}:
        return IN_PART  # whatever the others are
    if None in every:
        return OPEN
    return HOLDS if known == {True} else FAILS
