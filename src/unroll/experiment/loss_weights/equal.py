"""Multi-loss: every scored position counts the same."""

from __future__ import annotations


def scored(k2: int) -> int:
    """All of them."""
    return k2


def weights(k2: int, k3: int) -> tuple[float, ...]:
    """1/k3 on each of the last k3 positions."""
    return (1.0 / k3,) * k3
