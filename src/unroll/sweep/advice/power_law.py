"""How fast the log perplexity of a few seeds falls at the end of their curves.

A curve is taken for a power law of the batch that falls to half of the log perplexity reached so far:

    ln p(b) = y/2 + y/2 (L/b)^a        y = ln p at the last batch L

Where the floor is cannot be seen from a short curve, so it is not fitted. On the records of the repository errors are
the smallest with shares of 0.4 and 0.5, and on small models 0.5 is the better one of the two. What is left is one
number, the exponent a, which all seeds have in common. It is the median of the slopes between any two late points of a
seed, so that one wiggle moves it little. It is drawn to what curves usually have where the points say little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

FLOOR = 0.5  # of the log perplexity reached
WINDOW = math.log(3)  # how far back in ln(batch) the late part goes: the last two thirds of the batches
USUAL, SPREAD = 0.25, 0.15  # exponents of the records: their middle and their spread
NOISE, WORTH = 0.02, 2.0  # the usual scatter around a curve, in ln p, and the number of points that it counts for

Logs = Sequence[tuple[float, float]]  # ln(batch), ln(perplexity)


@dataclass(frozen=True)
class Exponent:
    """How fast curves fall, and its standard error."""

    value: float
    error: float


def exponent(curves: Sequence[Logs], reached: float) -> Exponent:
    """The common exponent of curves whose log perplexity came down to `reached`.

    >>> xs = [math.log(batch) for batch in (250, 300, 400, 500, 600, 800, 1000)]
    >>> falling = [(x, 1 + math.exp(0.3 * (xs[-1] - x))) for x in xs]
    >>> round(exponent([falling], 2.0).value, 2)
    0.3
    """
    scale = (1 - FLOOR) * reached
    late = [_late(curve, reached - scale, scale) for curve in curves] if scale > 0 else []
    slopes = [
        (before[1] - after[1]) / (after[0] - before[0])
        for curve in late
        for n, after in enumerate(curve)
        for before in curve[:n]
        if after[0] > before[0]
    ]
    if not slopes:
        return Exponent(USUAL, SPREAD)
    slope = median(slopes)
    # A scatter in ln p is one of z times the scale; a curve loses a degree of freedom for its level, all one for slope.
    freedom = max(0, sum(len(curve) - 1 for curve in late) - 1)
    width = sum(_squares([x for x, _ in curve]) for curve in late)
    scatter = sum(_squares([z + slope * x for x, z in curve]) for curve in late)
    noise = (WORTH * (NOISE / scale) ** 2 + scatter) / (WORTH + freedom)
    error = noise / width
    share = SPREAD**2 / (SPREAD**2 + error)  # that the points count for, against what is usual
    return Exponent(max(0.0, share * slope + (1 - share) * USUAL), math.sqrt(share * error))


def gain(reached: float, value: float, length: float) -> float:
    """By how much ln p falls while ln(batch) grows by `length`.

    >>> gain(2.0, 0.25, 0.0), round(gain(2.0, 0.25, math.log(16)), 3)
    (0.0, 0.5)
    """
    return (1 - FLOOR) * max(0.0, reached) * -math.expm1(-value * length)


def steepness(reached: float, value: float, length: float) -> float:
    """By how much that gain changes with the exponent."""
    return (1 - FLOOR) * max(0.0, reached) * length * math.exp(-value * length)


def _late(curve: Logs, floor: float, scale: float) -> list[tuple[float, float]]:
    """The late points, with z = ln(ln p - floor): the power law is a line in it."""
    first = curve[-1][0] - WINDOW
    return [(x, math.log(max(y - floor, scale / 10))) for x, y in curve if x >= first]


def _squares(values: Sequence[float]) -> float:
    middle = sum(values) / len(values)
    return sum((value - middle) ** 2 for value in values)
