"""An optimiser that goes on where it stopped: its first update here is not its first one.

Adam divides by 1 − βⁿ, where n counts its updates. Moments that were brought along belong to a large n.
"""

from __future__ import annotations

from torch import Tensor

from unroll.model.optimisers import Optimiser


class Continued:
    """An optimiser after so many updates."""

    def __init__(self, optimiser: Optimiser, before: int) -> None:
        self.optimiser, self.before = optimiser, before
        self.MOMENTS = optimiser.MOMENTS

    def update(
        self, gradient: Tensor, moments: tuple[Tensor, ...], learning_rate: Tensor, count: int | Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One step."""
        return self.optimiser.update(gradient, moments, learning_rate, count + self.before)


def continued(optimiser: Optimiser, before: int | None) -> Optimiser:
    """The optimiser as it goes on after `before` updates; None is from the beginning."""
    return Continued(optimiser, before) if before else optimiser
