"""The update of a fleet's parameters on the CPU in one pass over memory, compiled: see `machine_code.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from torch import Tensor

from unroll import parts
from unroll.machine_code import Code, Value, make, vector_bytes
from unroll.optimisers import Optimiser

PIECE = 1 << 16  # elements that a thread changes before it looks for more


class Compiled:
    """One optimiser, for all parameters of a fleet."""

    def __init__(self, optimiser: Optimiser) -> None:
        self._optimiser: Any = optimiser  # a module, which is hashable

    def update(
        self,
        tensors: Sequence[tuple[Tensor, Tensor, tuple[Tensor, ...]]],
        learning_rate_M: Tensor,
        alive_M: Tensor,
        count: int,
    ) -> None:
        """Change each (parameter, gradient, moments) in place where a run is alive; `count` is this update's number."""
        rates, alive = learning_rate_M.tolist(), alive_M.tolist()
        factors = self._optimiser.factors(count)
        tasks: list[tuple[Tensor, ...]] = []
        slots: list[int] = []
        for parameter, gradient, moments in tensors:
            for m in (m for m, goes in enumerate(alive) if goes):
                flat = [x.detach()[m].view(-1) for x in (parameter, gradient, *moments)]
                own = list(zip(*(x.split(PIECE) for x in flat), strict=True))
                tasks += own
                slots += [m] * len(own)
        change = _change_for(self._optimiser, 8 * tensors[0][0].element_size())
        threads = max(1, min(parts.count(), len(tasks)))

        def some(thread: int) -> None:
            for task, m in zip(tasks[thread::threads], slots[thread::threads], strict=True):
                parameter = task[0]
                whole = len(parameter) - len(parameter) % (vector_bytes() // parameter.element_size())
                change(*_addresses(task), whole, rates[m], *factors)
                if whole < len(parameter):
                    _by_torch(self._optimiser, [x[whole:] for x in task], learning_rate_M[m], count)

        parts.each(threads, some)


def _addresses(task: Sequence[Tensor]) -> list[int]:
    """Parameter, gradient, first and last moment: an optimiser with one has it twice."""
    return [x.data_ptr() for x in (task[0], task[1], task[2], task[-1])]


def _by_torch(optimiser: Optimiser, rest: Sequence[Tensor], rate: Tensor, count: int) -> None:
    """The few elements after the last whole vector."""
    parameter, gradient, *old = rest
    amount, new = optimiser.update(gradient, tuple(old), rate, count)
    parameter.sub_(amount)
    for o, n in zip(old, new, strict=True):
        o.copy_(n)


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
