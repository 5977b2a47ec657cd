"""Student's t: how far the mean of a few numbers may be from the truth."""

from __future__ import annotations

import math
from functools import cache

STEPS = 300  # of the continued fraction, at most
ENOUGH = 1e-15


def distribution(t: float, freedom: int) -> float:
    """The share of Student's distribution that lies below t.

    >>> round(distribution(2.776, 4), 4)
    0.975
    """
    tail = 0.5 * _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return 1 - tail if t > 0 else tail


@cache
def quantile(share: float, freedom: int) -> float:
    """The t below which this share of Student's distribution lies.

    >>> round(quantile(0.975, 2), 3)
    4.303
    """
    low, high = 0.0, 1.0
    if share < 0.5:
        return -quantile(1 - share, freedom)
    while distribution(high, freedom) < share:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if distribution(middle, freedom) < share else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, its mirror converges fast
        return 1 - _incomplete_beta(1 - x, b, a)
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    value, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(STEPS):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / (1 + term * denominator)
        numerator = 1 + term / numerator
        change = numerator * denominator
        value *= change
        if step and abs(change - 1) < ENOUGH:
            break
    return scale * (value - 1) / a
