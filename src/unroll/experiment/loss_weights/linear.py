"""Linear decay towards the past: the weight of position i is i/k2."""

from __future__ import annotations


def scored(k2: int) -> int:
    """All of them."""
    return k2


def weights(k2: int, k3: int) -> tuple[float, ...]:
    """i/k2 for the last k3 positions."""
    return tuple(i / k2 for i in range(k2 - k3 + 1, k2 + 1))
