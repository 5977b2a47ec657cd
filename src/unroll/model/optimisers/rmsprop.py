"""RMSprop with ρ = 0.9 and ε = 1e-6 inside the root, as the authors' framework had it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from unroll.engines.cpu.builder import Code, Value

MOMENTS = ("square",)
RHO, EPSILON = 0.9, 1e-6


def update(
    gradient: Tensor, moments: tuple[Tensor, ...], learning_rate: Tensor, count: int | Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One step."""
    square = (moments[0] * RHO).addcmul_(gradient, gradient, value=1 - RHO)
    return (gradient * learning_rate).div_((square + EPSILON).sqrt_()), (square,)


def factors(count: int) -> tuple[()]:
    """Nothing depends on the count."""
    return ()


def written(code: Code, g: Value, moments: Sequence[Value], rate: Value) -> tuple[Value, tuple[Value]]:
    """One step, as machine code."""
    square = code.fma(g * g, code.constant(1 - RHO), moments[0] * RHO)
    return g * rate / code.sqrt(square + EPSILON), (square,)


# The same for the fused update on a GPU.
CUDA_BEFORE = ""
CUDA = f"""
moment[0] = moment[0] * {RHO}f + g * g * {1 - RHO}f;
amount = g * rate / sqrtf(moment[0] + {EPSILON}f);
"""
