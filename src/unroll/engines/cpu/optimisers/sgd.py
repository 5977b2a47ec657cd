"""Gradient descent with momentum as machine code."""

from __future__ import annotations

from collections.abc import Sequence

from unroll.engines.cpu.builder import Code, Value


def factors(count: int, momentum: float) -> tuple[float]:
    """The momentum, which is the same at every update."""
    return (momentum,)


def written(code: Code, g: Value, moments: Sequence[Value], rate: Value, momentum: Value) -> tuple[Value, tuple[Value]]:
    """Write one update."""
    velocity = code.fma(moments[0], momentum, g)
    return velocity * rate, (velocity,)
