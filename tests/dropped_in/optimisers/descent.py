"""Plain gradient descent: it remembers nothing."""

from __future__ import annotations

from torch import Tensor

MOMENTS: tuple[str, ...] = ()


def update(
    gradient: Tensor, moments: tuple[Tensor, ...], learning_rate: Tensor, count: int | Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One step."""
    return gradient * learning_rate, ()
