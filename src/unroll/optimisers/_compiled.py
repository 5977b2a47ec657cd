"""The update of a fleet's parameters on the CPU in one pass over memory, compiled: see `machine_code.py`.

Tensors are taken in pieces, each a row of a table that the code reads: a call for each would cost more than its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll import parts
from unroll.machine_code import Code, Value, Variable, vector_bytes
from unroll.making_code import make
from unroll.optimisers import Optimiser

PIECE = 1 << 16  # elements that a thread changes before it looks for more
ALONE = 1 << 19  # elements that one thread has done before another is awake

Table = NDArray[np.int64]  # a row a piece: how many elements, and where it begins in each tensor


def _table(tensors: Sequence[Sequence[Tensor]], runs: Sequence[int], whole: int = 1) -> tuple[Table, list[int]]:
    """The pieces of these runs, in multiples of `whole` elements, and which run each is of; tensors are contiguous."""
    rows, of = [], []
    for own in tensors:
        elements, size = own[0].numel() // len(own[0]), own[0].element_size()
        begins = [x.data_ptr() for x in own]
        for m in runs:
            for n in range(0, elements - elements % whole, PIECE):
                place = (m * elements + n) * size
                rows.append((min(PIECE, elements - elements % whole - n), *(begin + place for begin in begins)))
                of.append(m)
    return np.array(rows, np.int64).reshape(len(rows), 1 + len(tensors[0])), of


def _each(table: Table, work: Callable[[int, int], None]) -> None:
    """work(first, step) for every thread: all rows from the first on, so many apart."""
    enough = len(table) and int(table[:, 0].sum()) * (table.shape[1] - 1) >= ALONE
    threads = min(parts.count(), len(table)) if enough else 1
    parts.each(threads, lambda thread: work(thread, threads))


class Compiled:
    """One optimiser, for all parameters of a fleet."""

    def __init__(self, optimiser: Optimiser) -> None:
        self._optimiser: Any = optimiser  # a module, which is hashable

    def finite(self, gradients: Sequence[Tensor]) -> Tensor:
        """Whether every gradient of each run is finite: [M]."""
        M = len(gradients[0])
        table, of = _table([(gradient,) for gradient in gradients], range(M))
        nothing = gradients[0].new_empty(len(table))
        look = _look_for(8 * nothing.element_size())
        _each(table, lambda *mine: look(table.ctypes.data, len(table), nothing.data_ptr(), *mine))
        bad = {m for m, found in zip(of, nothing.tolist(), strict=True) if found != 0}
        return torch.tensor([m not in bad for m in range(M)])

    def update(
        self,
        tensors: Sequence[tuple[Tensor, Tensor, tuple[Tensor, ...]]],
        learning_rate_M: Tensor,
        alive_M: Tensor,
        count: int,
    ) -> None:
        """Change each (parameter, gradient, moments) in place where a run is alive; `count` is this update's number."""
        alive = [m for m, goes in enumerate(alive_M.tolist()) if goes]
        size = tensors[0][0].element_size()
        change, lanes = _change_for(self._optimiser, 8 * size), vector_bytes() // size
        flat = [(p.detach(), gradient, *moments) for p, gradient, moments in tensors]
        table, of = _table(flat, alive, lanes)
        rates, factors = learning_rate_M[of], self._optimiser.factors(count)
        _each(table, lambda *mine: change(table.ctypes.data, rates.data_ptr(), len(table), *mine, *factors))
        for own in flat:
            rest = own[0].numel() // len(own[0]) % lanes
            for m in alive if rest else ():
                _by_torch(self._optimiser, [x[m].view(-1)[-rest:] for x in own], learning_rate_M[m], count)


def _by_torch(optimiser: Optimiser, rest: Sequence[Tensor], rate: Tensor, count: int) -> None:
    """The few elements after the last whole vector."""
    parameter, gradient, *old = rest
    amount, new = optimiser.update(gradient, tuple(old), rate, count)
    parameter.sub_(amount)
    for o, n in zip(old, new, strict=True):
        o.copy_(n)


@cache
def _look_for(bits: int) -> Callable[..., None]:
    def look(code: Code, table: Value, rows: Value, out: Value, first: Value, step: Value) -> None:
        """0 if all of a row are finite: 0 times anything else is not a number, and stays so in a sum."""
        with _rows(code, table, 2, rows, first, step) as (row, n, x):
            sums = Variable(code, code.constant(0.0))
            with code.loop(n // code.lanes) as v:
                sums.set(code.fma(code.load(code.at(x, v * code.lanes)), code.constant(0.0), sums.get()))
            total = Variable(code, code.total(sums.get()))
            with code.loop(n % code.lanes) as r:
                total.set(total.get() + code.load_element(code.at(x, n - n % code.lanes + r)) * 0.0)
            code.store_element(total.get(), code.at(out, row))

    return make(look, bits, "anann")


@cache
def _change_for(optimiser: Any, bits: int) -> Callable[..., None]:
    tensors = 2 + len(optimiser.MOMENTS)

    def change(code: Code, table: Value, rates: Value, rows: Value, first: Value, step: Value, *factors: Value) -> None:
        wide = [code.spread(x) for x in factors]
        with _rows(code, table, 1 + tensors, rows, first, step) as (row, n, *begins):
            rate = code.load_spread(code.at(rates, row))
            with code.loop(n // code.lanes) as v:
                p, g, *held = (code.at(x, v * code.lanes) for x in begins)
                amount, moments = optimiser.written(code, code.load(g), [code.load(x) for x in held], rate, *wide)
                code.store(code.load(p) - amount, p)
                for place, value in zip(held, moments, strict=True):
                    code.store(value, place)

    return make(change, bits, "aannn" + "e" * len(optimiser.factors(1)))


@contextmanager
def _rows(code: Code, table: Value, width: int, rows: Value, first: Value, step: Value) -> Iterator[tuple[Value, ...]]:
    """What is written inside happens for every row of a thread: its place, how many elements, and where they begin."""
    with code.loop((rows - first + step - 1) // step) as n:
        row = first + n * step
        elements, *begins = (code.load_index(table, row * width + place) for place in range(width))
        yield row, elements, *(code.pointer(begin) for begin in begins)
