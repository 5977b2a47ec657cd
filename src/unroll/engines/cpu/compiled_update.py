"""The update of a fleet's parameters on the CPU in one pass over memory, compiled: see `builder.py`.

Tensors are changed in pieces. Each piece is a row of a table that the code reads; a call for each piece would cost more
than its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from unroll.engines.cpu import optimisers, parallel_calls, workers
from unroll.engines.cpu.builder import Code, Value, Variable
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.packing import start
from unroll.engines.judged_update import JudgedUpdate
from unroll.model.engine import FleetTensors
from unroll.model.gradients import scale_of
from unroll.model.optimisers import Optimiser, keys_of

PIECE = 1 << 16  # elements that a thread changes before it takes another piece; whole vectors
ONE_THREAD = 1 << 16  # with fewer elements, a second thread does not pay


def _pieces(tensors: Sequence[Sequence[Tensor]]) -> list[tuple[int, ...]]:
    """A row for each piece, run by run: its number of elements, its run, and its address in each tensor."""
    rows = []
    for m in range(len(tensors[0][0])):
        for group in tensors:
            elements = group[0].numel() // len(group[0])
            begins = [start(x, m) for x in group]
            for n in range(0, elements, PIECE):
                addresses = (begin + n * group[0].element_size() for begin in begins)
                rows.append((min(PIECE, elements - n), m, *addresses))
    return rows


def _each(function: Callable[..., None], pieces: list[tuple[int, ...]], *others: Tensor) -> None:
    """Call the function for all pieces, which threads share."""
    enough = sum(elements * len(begins) for elements, _m, *begins in pieces) >= ONE_THREAD
    threads = min(workers.count(), len(pieces)) if enough else 1
    table = torch.tensor(pieces)
    arguments = (table.data_ptr(), *(x.data_ptr() for x in others), len(pieces))
    parallel_calls.do(function, [(*arguments, thread, threads) for thread in range(threads)])


class CompiledUpdate(JudgedUpdate):
    """Applies one optimiser to all parameters of a fleet."""

    def __init__(self, fleet: FleetTensors) -> None:
        super().__init__(fleet)
        self._code: Any = cast(Any, optimisers.of(fleet.optimiser))  # a module, which is hashable
        self._keys = keys_of(fleet.optimiser)
        self._factors = torch.tensor(self._code.factors(1, **self._keys), dtype=fleet.learning_rate_M.dtype)

    @staticmethod
    def knows(optimiser: Optimiser) -> bool:
        """Whether an optimiser has a file of machine code."""
        return optimisers.of(optimiser) is not None

    def begin(self, count: int) -> None:
        """Begin the update with this number, counted from 1."""
        self._factors.copy_(torch.tensor(self._code.factors(count, **self._keys), dtype=torch.float64))

    def finite(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Whether every gradient of each run is finite: [M]."""
        tensors = list(gradients.values())
        pieces = _pieces([(gradient,) for gradient in tensors])
        zeros = tensors[0].new_empty(len(pieces))
        _each(_check_for(8 * zeros.element_size()), pieces, zeros)
        return (zeros.view(len(tensors[0]), -1) == 0).all(1)

    def change(self, gradients: Mapping[str, Tensor], alive_M: Tensor) -> None:
        """Change weights and moments of the runs that are alive, in place."""
        fleet, scale_M = self.fleet, self.scale_M(gradients)
        tensors = [(fleet.parameters[name], gradient, *fleet.moments[name]) for name, gradient in gradients.items()]
        decay = None if fleet.decay is None else "decoupled" if fleet.decay.decoupled else "l2"
        bits = 8 * fleet.learning_rate_M.element_size()
        code = _change_for(
            self._code, len(fleet.optimiser.MOMENTS), len(self._factors), bits, decay, scale_M is not None
        )
        more = [] if fleet.decay is None else [fleet.decay.share_M]
        more += [] if scale_M is None else [scale_M]
        _each(code, _pieces(tensors), fleet.learning_rate_M, alive_M.long(), self._factors, *more)

    def scale_M(self, gradients: Mapping[str, Tensor]) -> Tensor | None:
        """What clipping by norm multiplies each run's gradients by: [M]; None where no run has a limit."""
        limit = self.fleet.norm_limit
        return None if limit is None else scale_of(self.norm_M(gradients), limit.limit_M)

    def norm_M(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """The norm of all gradients of each run: [M]."""
        tensors = list(gradients.values())
        squares_nM = tensors[0].new_empty(len(tensors), len(tensors[0]))
        # A table of tensors, not of pieces, which lie elsewhere where a vocabulary is padded.
        table: list[tuple[int, ...]] = [
            (g[m].numel(), g.shape[-1], start(g, m)) for g in tensors for m in range(len(g))
        ]
        _each(_squares_for(8 * squares_nM.element_size()), table, squares_nM)
        total_M = squares_nM[0]
        for squares_M in squares_nM[1:]:  # in this order, whatever M is
            total_M = total_M + squares_M
        return total_M.sqrt()


@cache
def _check_for(bits: int) -> Callable[..., None]:
    def check(code: Code, table: Value, out: Value, rows: Value, first: Value, step: Value) -> None:
        """Store 0 if all elements of a row are finite; 0 times any other element is a NaN, and so is its sum."""
        with _rows(code, table, 1, rows, first, step) as (row, n, _m, x):
            sums = Variable(code, code.constant(0.0))
            with code.loop(n // code.lanes) as v:
                sums.set(code.fma(code.load(code.at(x, v * code.lanes)), code.constant(0.0), sums.get()))
            total = Variable(code, code.total(sums.get()))
            with code.loop(n % code.lanes) as r:
                total.set(total.get() + code.load_element(code.at(x, n - n % code.lanes + r)) * 0.0)
            code.store_element(total.get(), code.at(out, row))

    return make(check, bits, "aannn")


@cache
def _squares_for(bits: int) -> Callable[..., None]:
    def squares(code: Code, table: Value, out: Value, tensors: Value, first: Value, step: Value) -> None:
        """Store the sum of the squares of each tensor's elements, whose rows are summed one after another.

        Zeros behind a row, or rows of zeros behind a tensor, leave every bit of the sum as it is, since each lane adds
        up what stands in its own columns.
        """
        with code.loop((tensors - first + step - 1) // step) as n:
            tensor = first + n * step
            elements, columns, begin = (code.load_index(table, tensor * 3 + column) for column in range(3))
            x = code.pointer(begin)
            sums = Variable(code, code.constant(0.0))
            rest = Variable(code, code.total(code.constant(0.0)))
            with code.loop(elements // columns) as r:
                row = code.at(x, r * columns)
                of_row = Variable(code, code.constant(0.0))
                with code.loop(columns // code.lanes) as v:
                    some = code.load(code.at(row, v * code.lanes))
                    of_row.set(code.fma(some, some, of_row.get()))
                sums.set(sums.get() + of_row.get())
                with code.loop(columns % code.lanes) as c:
                    one = code.load_element(code.at(row, columns - columns % code.lanes + c))
                    rest.set(rest.get() + one * one)
            code.store_element(code.total(sums.get()) + rest.get(), code.at(out, tensor))

    return make(squares, bits, "aannn")


@cache
def _change_for(
    optimiser: Any, moments: int, factor_count: int, bits: int, decay: str | None, scaled: bool
) -> Callable[..., None]:
    tensors = 2 + moments

    def change(
        code: Code,
        table: Value,
        rates: Value,  # [M]
        alive: Value,  # [M]: 1 or 0
        factors: Value,
        *rest: Value,  # each run's share of decay and its scale, where there are any; rows, first and step
    ) -> None:
        *more, rows, first, step = rest
        factor_vectors = [code.load_spread(code.at(factors, n)) for n in range(factor_count)]
        with _rows(code, table, tensors, rows, first, step) as (_row, n, m, *begins):
            rate = code.load_spread(code.at(rates, m))
            per_run = [code.load_spread(code.at(one, m)) for one in more]
            kept = code.constant(1.0) - rate * per_run[0] if decay == "decoupled" else None

            def vector(addresses: list[Value]) -> None:
                p, g, *held = addresses
                gradient = code.load(g)
                if scaled:
                    gradient = gradient * per_run[-1]
                if decay == "l2":
                    gradient = code.fma(per_run[0], code.load(p), gradient)
                amount, new_moments = optimiser.written(
                    code, gradient, [code.load(x) for x in held], rate, *factor_vectors
                )
                before = code.load(p) if kept is None else code.load(p) * kept
                for address, value in zip((p, *held), (before - amount, *new_moments), strict=True):
                    code.store(value, address)

            with code.loop(code.load_index(alive, m)):  # once or not at all
                with code.loop(n // code.lanes) as v:
                    vector([code.at(x, v * code.lanes) for x in begins])
                _rest(code, [code.at(x, n - n % code.lanes) for x in begins], n % code.lanes, vector)

    return make(change, bits, "aaaa" + "a" * ((decay is not None) + scaled) + "nnn")


def _rest(code: Code, addresses: list[Value], rest: Value, vector: Callable[[list[Value]], None]) -> None:
    """Change the last elements, fewer than a vector, in copies of a whole vector."""
    rooms = [code.vector_room() for _ in addresses]

    def copy(sources: list[Value], goals: list[Value]) -> None:
        with code.loop(rest) as r:
            for source, goal in zip(sources, goals, strict=True):
                code.store_element(code.load_element(code.at(source, r)), code.at(goal, r))

    with code.loop((rest + (code.lanes - 1)) // code.lanes):  # once or not at all
        for room in rooms:
            code.store(code.constant(0.0), room)
        copy(addresses, rooms)
        vector(rooms)
        copy(rooms, addresses)


@contextmanager
def _rows(
    code: Code, table: Value, tensors: int, rows: Value, first: Value, step: Value
) -> Iterator[tuple[Value, ...]]:
    """Repeat what is written inside for every row of a thread: its index, elements, run, and addresses."""
    width = 2 + tensors
    with code.loop((rows - first + step - 1) // step) as n:
        row = first + n * step
        elements, m, *begins = (code.load_index(table, row * width + column) for column in range(width))
        yield row, elements, m, *(code.pointer(begin) for begin in begins)
