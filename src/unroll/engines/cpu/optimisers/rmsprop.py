"""RMSprop as machine code."""

from __future__ import annotations

from collections.abc import Sequence

from unroll.engines.cpu.builder import Code, Value
from unroll.model.optimisers.rmsprop import EPSILON, RHO


def factors(count: int) -> tuple[()]:
    """No factor depends on the count."""
    return ()


def written(code: Code, g: Value, moments: Sequence[Value], rate: Value) -> tuple[Value, tuple[Value]]:
    """Write one update."""
    square = code.fma(g * g, code.constant(1 - RHO), moments[0] * RHO)
    return g * rate / code.sqrt(square + EPSILON), (square,)
