"""Adam, as Algorithm 1 of Kingma and Ba writes it: bias-corrected moments, ε outside the root."""

from __future__ import annotations

from torch import Tensor

MOMENTS = ("m", "v")
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def update(
    gradient: Tensor, moments: tuple[Tensor, ...], learning_rate: Tensor, count: int | Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One step."""
    m, v = moments
    m = m.lerp(gradient, 1 - BETA1)
    v = (v * BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    # The corrections of the bias as factors: dividing every element is slow.
    root = (v * (1 / (1 - BETA2**count))).sqrt_()
    return (m * (learning_rate / (1 - BETA1**count))).div_(root.add_(EPSILON)), (m, v)
