"""The update of a fleet's parameters on the CPU in one pass over memory, compiled: see `machine_code.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unroll import parts
from unroll.machine_code import Code, Value, Variable, vector_bytes
from unroll.making_code import make
from unroll.optimisers import Optimiser

PIECE = 1 << 16  # elements that a thread changes before it looks for more
ALONE = 1 << 19  # elements that one thread has done before another is awake


class _Piece(NamedTuple):
    """Some elements of one run, in tensors of one shape."""

    m: int
    own: Sequence[Tensor]
    first: int
    elements: int
    addresses: Sequence[int]  # where it begins in each

    def after(self, n: int) -> list[Tensor]:
        """What follows the first n elements."""
        return [x.detach()[self.m].view(-1)[self.first + n : self.first + self.elements] for x in self.own]


def _pieces(tensors: Sequence[Sequence[Tensor]], runs: Sequence[int]) -> Iterator[_Piece]:
    """All of these runs; tensors are [M, …], contiguous."""
    for own in tensors:
        elements, size = own[0].numel() // len(own[0]), own[0].element_size()
        begins = [x.data_ptr() for x in own]
        for m in runs:
            for n in range(0, elements, PIECE):
                addresses = [begin + (m * elements + n) * size for begin in begins]
                yield _Piece(m, own, n, min(PIECE, elements - n), addresses)


def _each(pieces: Sequence[_Piece], work: Callable[[int, _Piece], None]) -> None:
    """work(place, piece) for all, threads sharing them if there is enough for two."""
    threads = max(1, min(parts.count(), len(pieces)))
    if sum(len(piece.addresses) * piece.elements for piece in pieces) < ALONE:
        threads = 1

    def some(thread: int) -> None:
        for n in range(thread, len(pieces), threads):
            work(n, pieces[n])

    parts.each(threads, some)


class Compiled:
    """One optimiser, for all parameters of a fleet."""

    def __init__(self, optimiser: Optimiser) -> None:
        self._optimiser: Any = optimiser  # a module, which is hashable

    def finite(self, gradients: Sequence[Tensor]) -> Tensor:
        """Whether every gradient of each run is finite: [M]."""
        M = len(gradients[0])
        pieces = list(_pieces([(gradient,) for gradient in gradients], range(M)))
        nothing = gradients[0].new_empty(len(pieces))
        look = _look_for(8 * nothing.element_size())
        begin, size = nothing.data_ptr(), nothing.element_size()
        _each(pieces, lambda n, piece: look(*piece.addresses, piece.elements, begin + n * size))
        bad = {piece.m for piece, found in zip(pieces, nothing.tolist(), strict=True) if found != 0}
        return torch.tensor([m not in bad for m in range(M)])

    def update(
        self,
        tensors: Sequence[tuple[Tensor, Tensor, tuple[Tensor, ...]]],
        learning_rate_M: Tensor,
        alive_M: Tensor,
        count: int,
    ) -> None:
        """Change each (parameter, gradient, moments) in place where a run is alive; `count` is this update's number."""
        rates, alive = learning_rate_M.tolist(), [m for m, goes in enumerate(alive_M.tolist()) if goes]
        factors = self._optimiser.factors(count)
        size = tensors[0][0].element_size()
        change, lanes = _change_for(self._optimiser, 8 * size), vector_bytes() // size

        def some(_n: int, piece: _Piece) -> None:
            whole, (parameter, gradient, *moments) = piece.elements - piece.elements % lanes, piece.addresses
            # An optimiser with one moment has it twice.
            change(parameter, gradient, moments[0], moments[-1], whole, rates[piece.m], *factors)
            if whole < piece.elements:
                _by_torch(self._optimiser, piece.after(whole), learning_rate_M[piece.m], count)

        _each(list(_pieces([(p, gradient, *moments) for p, gradient, moments in tensors], alive)), some)


def _by_torch(optimiser: Optimiser, rest: Sequence[Tensor], rate: Tensor, count: int) -> None:
    """The few elements after the last whole vector."""
    parameter, gradient, *old = rest
    amount, new = optimiser.update(gradient, tuple(old), rate, count)
    parameter.sub_(amount)
    for o, n in zip(old, new, strict=True):
        o.copy_(n)


@cache
def _look_for(bits: int) -> Callable[..., None]:
    def look(code: Code, x: Value, n: Value, out: Value) -> None:
        """0 if all are finite: 0 times anything else is not a number, and stays so in a sum."""
        sums = Variable(code, code.constant(0.0))
        with code.loop(n // code.lanes) as v:
            sums.set(code.fma(code.load(code.at(x, v * code.lanes)), code.constant(0.0), sums.get()))
        total = Variable(code, code.total(sums.get()))
        with code.loop(n % code.lanes) as r:
            total.set(total.get() + code.load_element(code.at(x, n - n % code.lanes + r)) * 0.0)
        code.store_element(total.get(), out)

    return make(look, bits, "ana")


@cache
def _change_for(optimiser: Any, bits: int) -> Callable[..., None]:
    def change(
        code: Code, parameter: Value, gradient: Value, one: Value, two: Value, n: Value, rate: Value, *factors: Value
    ) -> None:
        wide = [code.spread(x) for x in (rate, *factors)]
        places = (one, two)[: len(optimiser.MOMENTS)]
        with code.loop(n // code.lanes) as v:
            p, g, *held = (code.at(x, v * code.lanes) for x in (parameter, gradient, *places))
            amount, moments = optimiser.written(code, code.load(g), [code.load(x) for x in held], *wide)
            code.store(code.load(p) - amount, p)
            for place, value in zip(held, moments, strict=True):
                code.store(value, place)

    return make(change, bits, "aaaane" + "e" * len(optimiser.factors(1)))
