"""Gradient descent with momentum, as torch has it: the velocity is a sum of gradients that fade by `momentum`."""

from __future__ import annotations

from torch import Tensor

from unroll.experiment.spelled import BELOW_ONE, Key

MOMENTS = ("velocity",)
KEYS = {"momentum": Key(0.0, BELOW_ONE)}


def update(
    gradient: Tensor,
    moments: tuple[Tensor, ...],
    learning_rate: Tensor,
    count: int | Tensor,
    momentum: float,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One step."""
    velocity = moments[0] * momentum + gradient
    return velocity * learning_rate, (velocity,)
