"""Sums that threads add up separately, and their totals, compiled: see `builder.py`.

Shapes: P threads.
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
from unroll.engines.cpu.transposed_products import spaced

ONE_THREAD = 1 << 14  # up to this many elements, a second thread does not pay


class PartialSums:
    """Tensors that each thread adds up for itself, [P, …]: whole vectors in rows that are `spaced`."""

    def __init__(self, P: int, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> None:
        lanes = vector_bytes() // dtype.itemsize
        wider = [(*shape[:-1], spaced(shape[-1], lanes)) for shape in shapes]
        self._memory_P = take((P, sum(map(math.prod, wider))), dtype)
        pieces = [row.split([math.prod(shape) for shape in wider]) for row in self._memory_P]
        self.by_thread = [
            [piece.view(wide)[..., : shape[-1]] for piece, wide, shape in zip(row, wider, shapes, strict=True)]
            for row in pieces
        ]

    def totals(self) -> list[Tensor]:
        """The sums over all threads; their rows follow each other."""
        P, apart = self._memory_P.shape
        of_first_thread = self.by_thread[0]
        totals = [take(tuple(sums.shape), sums.dtype) for sums in of_first_thread]
        threads = workers.count() if apart > ONE_THREAD else 1
        calls = []
        for total, sums in zip(totals, of_first_thread, strict=True):
            n = sums.shape[-1]
            rows = workers.divided(sums.numel() // max(n, 1), threads)
            calls += [(total.data_ptr(), sums.data_ptr(), P, apart, r.start, r.stop - r.start, n) for r in rows]
        parallel_calls.do(_add_for(8 * self._memory_P.element_size()), calls)
        return totals


def add(code: Code, out: Value, x: Value, P: Value, apart: Value, first: Value, rows: Value, n: Value) -> None:
    """Add up rows of all threads, in the order of the threads."""
    with code.loop(rows) as r, code.loop(n // code.lanes) as v:
        row, column = first + r, v * code.lanes
        index = row * spaced(n, code.lanes) + column
        total = Variable(code, code.load(code.at(x, index)))
        with code.loop(P - 1) as p:
            total.set(total.get() + code.load(code.at(x, (p + 1) * apart + index)))
        code.store(total.get(), code.at(out, row * n + column))


@cache
def _add_for(bits: int) -> Callable[..., None]:
    return make(add, bits, "aannnnn")
