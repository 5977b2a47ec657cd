"""Only the middle position of a window carries a loss; with k3, the first of the last k3."""

from __future__ import annotations


def scored(k2: int) -> int:
    """From the middle on."""
    return k2 - k2 // 2


def weights(k2: int, k3: int) -> tuple[float, ...]:
    """One 1, then zeros."""
    return (1.0, *[0.0] * (k3 - 1))
