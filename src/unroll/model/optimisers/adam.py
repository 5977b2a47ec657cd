"""Adam, as Algorithm 1 of Kingma and Ba writes it: bias-corrected moments, ε outside the root."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from unroll.engines.cpu.builder import Code, Value

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


def factors(count: int) -> tuple[float, float]:
    """The corrections of the bias."""
    return 1 / (1 - BETA1**count), 1 / (1 - BETA2**count)


def written(
    code: Code, g: Value, moments: Sequence[Value], rate: Value, of_m: Value, of_v: Value
) -> tuple[Value, tuple[Value, Value]]:
    """One step, as machine code."""
    m, v = moments
    m = code.fma(g - m, code.constant(1 - BETA1), m)
    v = code.fma(g * g, code.constant(1 - BETA2), v * BETA2)
    return m * (rate * of_m) / (code.sqrt(v * of_v) + EPSILON), (m, v)


# The same for the fused update on a GPU: once a block of threads, then for each gradient g.
CUDA_BEFORE = f"factor[0] = -expm1f(count * {math.log(BETA1)!r}f); factor[1] = -expm1f(count * {math.log(BETA2)!r}f);"
CUDA = f"""
moment[0] += (g - moment[0]) * {1 - BETA1}f;
moment[1] = moment[1] * {BETA2}f + g * g * {1 - BETA2}f;
amount = rate * (moment[0] / factor[0]) / (sqrtf(moment[1] / factor[1]) + {EPSILON}f);
"""
