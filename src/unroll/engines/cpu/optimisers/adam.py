"""Adam as machine code."""

from __future__ import annotations

from collections.abc import Sequence

from unroll.engines.cpu.builder import Code, Value
from unroll.model.optimisers.adam import BETA1, BETA2, EPSILON


def factors(count: int) -> tuple[float, float]:
    """The corrections of the bias."""
    return 1 / (1 - BETA1**count), 1 / (1 - BETA2**count)


def written(
    code: Code, g: Value, moments: Sequence[Value], rate: Value, of_m: Value, of_v: Value
) -> tuple[Value, tuple[Value, Value]]:
    """Write one update."""
    m, v = moments
    m = code.fma(g - m, code.constant(1 - BETA1), m)
    v = code.fma(g * g, code.constant(1 - BETA2), v * BETA2)
    return m * (rate * of_m) / (code.sqrt(v * of_v) + EPSILON), (m, v)
