"""Exponential decay towards the past: the weight of position i is exp(i − k2)."""

from __future__ import annotations

import math


def scored(k2: int) -> int:
    """All of them."""
    return k2


def weights(k2: int, k3: int) -> tuple[float, ...]:
    """exp(i − k2) for the last k3 positions; the far past underflows to 0 and costs nothing but its softmax."""
    return tuple(math.exp(i - k2) for i in range(k2 - k3 + 1, k2 + 1))
