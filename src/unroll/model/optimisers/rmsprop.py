"""RMSprop with ρ = 0.9 and ε = 1e-6 inside the root, as the authors' framework had it."""

from __future__ import annotations

from torch import Tensor

MOMENTS = ("square",)
RHO, EPSILON = 0.9, 1e-6


def update(
    gradient: Tensor, moments: tuple[Tensor, ...], learning_rate: Tensor, count: int | Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One step."""
    square = (moments[0] * RHO).addcmul_(gradient, gradient, value=1 - RHO)
    return (gradient * learning_rate).div_((square + EPSILON).sqrt_()), (square,)
