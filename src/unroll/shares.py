"""Sums of which each thread adds up a share, compiled: see `machine_code.py`.

Shapes: P parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from unroll import parts, team
from unroll.machine_code import Code, Value, Variable, vector_bytes
from unroll.making_code import make
from unroll.spare import take

ALONE = 1 << 14  # elements that are not worth a second thread


class Shares:
    """Tensors of which each part adds up its own; in one piece of memory, [P, elements]."""

    def __init__(self, P: int, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> None:
        self._lanes = vector_bytes() // dtype.itemsize
        sizes = [math.prod(shape) for shape in shapes]
        vectors = -(-sum(sizes) // self._lanes)
        self._memory_P = take((P, vectors * self._lanes), dtype)
        rows = [row.split([*sizes, row.numel() - sum(sizes)]) for row in self._memory_P]
        self.of = [[own.view(shape) for own, shape in zip(row, shapes, strict=False)] for row in rows]

    def totals(self) -> list[Tensor]:
        """The sums, in the place of the first part's."""
        P, elements = self._memory_P.shape
        own = parts.divided(elements // self._lanes, parts.count() if elements > ALONE else 1)
        told = self._memory_P.data_ptr(), P, elements
        if P > 1:
            team.do(_add_for(8 * self._memory_P.element_size()), [(*told, x.start, x.stop - x.start) for x in own])
        return self.of[0]


def add(code: Code, memory: Value, P: Value, elements: Value, first: Value, vectors: Value) -> None:
    """All shares to the first, in their order; so many vectors from the first on."""
    with code.loop(vectors) as v:
        place = (first + v) * code.lanes
        total = Variable(code, code.load(code.at(memory, place)))
        with code.loop(P - 1) as p:
            total.set(total.get() + code.load(code.at(memory, (p + 1) * elements + place)))
        code.store(total.get(), code.at(memory, place))


@cache
def _add_for(bits: int) -> Callable[..., None]:
    return make(add, bits, "annnn")
