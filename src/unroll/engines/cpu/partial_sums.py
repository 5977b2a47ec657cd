"""Sums of which each thread adds up a share, compiled: see `builder.py`.

Shapes: P parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from unroll.engines.cpu import parallel_calls, workers
from unroll.engines.cpu.buffer_pool import take
from unroll.engines.cpu.builder import Code, Value, Variable, vector_bytes
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.products import spaced

ALONE = 1 << 14  # elements that are not worth a second thread


class Shares:
    """Tensors of which each part adds up its own, [P, …]: whole vectors in rows that are `spaced`."""

    def __init__(self, P: int, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> None:
        lanes = vector_bytes() // dtype.itemsize
        wider = [(*shape[:-1], spaced(shape[-1], lanes)) for shape in shapes]
        self._memory_P = take((P, sum(map(math.prod, wider))), dtype)
        pieces = [row.split([math.prod(shape) for shape in wider]) for row in self._memory_P]
        self.of = [
            [own.view(wide)[..., : shape[-1]] for own, wide, shape in zip(row, wider, shapes, strict=True)]
            for row in pieces
        ]

    def totals(self) -> list[Tensor]:
        """The sums, with nothing between their rows."""
        (P, apart), first = self._memory_P.shape, self.of[0]
        found = [take(tuple(own.shape), own.dtype) for own in first]
        threads, calls = workers.count() if apart > ALONE else 1, []
        for total, own in zip(found, first, strict=True):
            n = own.shape[-1]
            rows = workers.divided(own.numel() // max(n, 1), threads)
            calls += [(total.data_ptr(), own.data_ptr(), P, apart, r.start, r.stop - r.start, n) for r in rows]
        parallel_calls.do(_add_for(8 * self._memory_P.element_size()), calls)
        return found


def add(code: Code, out: Value, x: Value, P: Value, apart: Value, first: Value, rows: Value, n: Value) -> None:
    """Some rows of all shares, in their order."""
    with code.loop(rows) as r, code.loop(n // code.lanes) as v:
        row, column = first + r, v * code.lanes
        place = row * spaced(n, code.lanes) + column
        total = Variable(code, code.load(code.at(x, place)))
        with code.loop(P - 1) as p:
            total.set(total.get() + code.load(code.at(x, (p + 1) * apart + place)))
        code.store(total.get(), code.at(out, row * n + column))


@cache
def _add_for(bits: int) -> Callable[..., None]:
    return make(add, bits, "aannnnn")
