"""How gradients change the weights. One file an optimiser; a file supplies

    MOMENTS                                               the names of what it remembers of each parameter
    update(gradient, moments, learning_rate, count)       -> the amount to subtract, and the moments after

    CUDA, CUDA_BEFORE                                     the same in CUDA C++: see update.cu
    factors(count), written(code, g, moments, rate, …)    the same as machine code: what depends on the count alone,
                                                          and the rest; see `engines/cpu/builder.py`

`count` is the number of this update, from 1; a float64 tensor where a step is recorded. Everything carries the run axis
M; `learning_rate` is [M, 1, …].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from torch import Tensor

from unroll.base import plugins
from unroll.engines.cpu.builder import Code, Value


class Optimiser(Protocol):
    """What every optimiser file is."""

    MOMENTS: tuple[str, ...]
    CUDA: str
    CUDA_BEFORE: str

    def update(
        self, gradient: Tensor, moments: tuple[Tensor, ...], learning_rate: Tensor, count: int | Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]: ...

    def factors(self, count: int) -> tuple[float, ...]: ...

    def written(
        self, code: Code, g: Value, moments: Sequence[Value], rate: Value, *factors: Value
    ) -> tuple[Value, tuple[Value, ...]]: ...


def load(name: str) -> Optimiser:
    """The optimiser behind an option's name."""
    return cast(Optimiser, plugins.load("optimisers", name))
