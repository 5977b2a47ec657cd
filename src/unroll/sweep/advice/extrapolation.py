"""What a full run will reach, from the curves of a short one: the expected perplexity, and an interval.

The pilot has a curve for each of a few seeds. The interval holds one more run of the same configuration, with a seed of
its own, trained to the full length, in nine of ten cases. It speaks of the perplexity of the best weights: those that
the validation set chooses, or the test set where there is none.

The gain of the longer training follows a power law (`power_law.py`). It fades where the curves turn: where the last
two points are both 1 % above the best, no gain is expected. One point may be a wiggle. A gain is never sure: a corpus
may begin to be learned by heart, or may have more to give than its beginning shows. So an end of the interval is as far
from the middle as three parts make together, in squares: what seeds do, a share of the gain, and the error of the
exponent. The seeds' part and the share come from the records of the repository: `benchmarks/extrapolation.py` computes
them, and how often an interval holds for a corpus that they do not come from.

    >>> seeds = [[(batch, math.exp(1 + batch**-0.25 * level)) for batch in (100, 200, 400, 800)] for level in (5, 5.1)]
    >>> full = expected([Curve(tuple(test)) for test in seeds], batches=3200)
    >>> full is not None and round(full.perplexity, 2), full.turned
    (5.31, False)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unroll.sweep.advice import power_law

Points = tuple[tuple[int, float], ...]  # batch, perplexity
TURN = 0.01  # how far above its best, in ln p, a curve ends that has turned: its last two points
WIGGLE = 0.1  # so far above it, a turn is no wiggle of the evaluations
ERRORS = 1.645  # of a normal distribution, on each side of nine of ten
USUAL_SPREAD, WORTH = 0.02, 3.0  # of ln p between seeds, and the number of seeds that this knowledge counts for
LARGEST = 700.0  # of a logarithm whose number a float holds


@dataclass(frozen=True)
class Curve:
    """One seed's evaluations, in the order of the batches."""

    test: Points
    validation: Points = ()  # none: the test set chooses the best


@dataclass(frozen=True)
class Reach:
    """How far an end of the interval is from its middle, for a spread between seeds and for a gain of 1."""

    seed: float
    gain: float


LOW, HIGH = Reach(1.24, 0.59), Reach(3.05, 0.64)  # computed, not chosen


@dataclass(frozen=True)
class Expectation:
    """The perplexity of a new full run's best weights."""

    perplexity: float
    low: float
    high: float  # infinite where a seed of the pilot diverged
    batch: int  # where the best weights are expected: at the end, or where the pilot turned
    turned: bool


@dataclass(frozen=True)
class Parts:
    """What the expectation and its interval are made of, in ln p."""

    reached: float  # the mean of the seeds' best
    gain: float  # that is expected
    possible: float  # the gain if the turn is a wiggle
    seeds: float  # the spread between seeds, of one more and of the mean
    slope: float  # what the error of the exponent makes of the gain
    batch: int
    turned: bool
    diverged: bool

    def low(self, reach: Reach) -> float:
        """How far the lower end lies below the middle."""
        return math.hypot(reach.seed * self.seeds, reach.gain * self.gain, ERRORS * self.slope) + self.possible

    def high(self, reach: Reach) -> float:
        """How far the upper end lies above the middle: with more batches the best is no worse but for the seed."""
        whole = math.hypot(reach.seed * self.seeds, reach.gain * self.gain, ERRORS * self.slope)
        return min(whole, self.gain + reach.seed * self.seeds)


@dataclass(frozen=True)
class _Seed:
    test: power_law.Logs
    best: float  # ln p
    best_batch: int
    rise: float  # by which the last two points both lie above the best, on the set that chooses


def expected(curves: Sequence[Curve], batches: int, low: Reach = LOW, high: Reach = HIGH) -> Expectation | None:
    """The perplexity of a run of this many batches; None where no seed came to its end with finite perplexities."""
    known = parts(curves, batches)
    if known is None:
        return None
    middle = known.reached - known.gain
    return Expectation(
        _exp(middle),
        _exp(max(0.0, middle - known.low(low))),
        math.inf if known.diverged else _exp(middle + known.high(high)),
        known.batch,
        known.turned,
    )


def parts(curves: Sequence[Curve], batches: int) -> Parts | None:
    """What is known of a run of this many batches. Points beyond them do not count."""
    seeds = [seed for curve in curves if (seed := _seed(curve, batches)) is not None]
    if not seeds:
        return None
    count = len(seeds)
    reached = sum(seed.best for seed in seeds) / count
    exponent = power_law.exponent([seed.test for seed in seeds], reached)
    lengths = [max(0.0, math.log(batches) - seed.test[-1][0]) for seed in seeds]
    whole = sum(power_law.gain(reached, exponent.value, length) for length in lengths) / count
    slope = exponent.error * sum(power_law.steepness(reached, exponent.value, length) for length in lengths) / count
    rise = sum(seed.rise for seed in seeds) / count
    going = max(0.0, 1 - rise / TURN)
    turned = going == 0
    squares = sum((seed.best - reached) ** 2 for seed in seeds)
    spread = math.sqrt((WORTH * USUAL_SPREAD**2 + squares) / (WORTH + count - 1))
    turn = math.exp(sum(math.log(seed.best_batch) for seed in seeds) / count)
    return Parts(
        reached=reached,
        gain=going * whole,
        possible=(1 - going) * max(0.0, 1 - rise / WIGGLE) * whole,
        seeds=spread * math.sqrt(1 + 1 / count),
        slope=slope,
        batch=round(turn) if turned else batches,
        turned=turned,
        diverged=count < len(curves),
    )


def _seed(curve: Curve, batches: int) -> _Seed | None:
    """A seed's curve in logarithms; None where it ends without a finite perplexity."""
    test = [(batch, math.log(p)) for batch, p in curve.test if 1 <= batch <= batches and 1 <= p < math.inf]
    chosen = {batch: math.log(p) for batch, p in curve.validation or curve.test if 1 <= p < math.inf}
    points = [(batch, y, chosen[batch]) for batch, y in test if batch in chosen]
    last = max((batch for batch, _ in curve.test if batch <= batches), default=None)
    if not points or points[-1][0] != last:
        return None
    best = min(points, key=lambda point: point[2])
    logs = tuple((math.log(batch), y) for batch, y in test)
    return _Seed(logs, best[1], best[0], min(chosen for _, _, chosen in points[-2:]) - best[2])


def _exp(logarithm: float) -> float:
    return math.exp(min(logarithm, LARGEST))
