"""Optimisers as machine code: the files of `model/optimisers` once more, for vectors. One file an optimiser:

    factors(count, **keys)                  numbers that depend only on the number of the update, from 1, and on keys
    written(code, g, moments, rate, …)      the amount to subtract and the moments after; … are the factors

An optimiser without a file here runs in torch's operations, on threads.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from unroll.engines.cpu.builder import Code, Value
from unroll.model.continued import Continued
from unroll.model.optimisers import Optimiser, file_name


class WrittenOptimiser(Protocol):
    """The interface of every file here."""

    def factors(self, count: int, **keys: float) -> tuple[float, ...]: ...

    def written(
        self, code: Code, g: Value, moments: Sequence[Value], rate: Value, *factors: Value
    ) -> tuple[Value, tuple[Value, ...]]: ...


@dataclass(frozen=True)
class _Later:
    """The machine code of an optimiser that goes on after so many updates."""

    code: WrittenOptimiser
    before: int

    def factors(self, count: int, **keys: float) -> tuple[float, ...]:
        return self.code.factors(count + self.before, **keys)

    def written(
        self, code: Code, g: Value, moments: Sequence[Value], rate: Value, *factors: Value
    ) -> tuple[Value, tuple[Value, ...]]:
        return self.code.written(code, g, moments, rate, *factors)


def of(optimiser: Optimiser) -> WrittenOptimiser | None:
    """The machine code of an optimiser; None if it has no file here."""
    if isinstance(optimiser, Continued):
        from_the_start = of(optimiser.optimiser)
        return None if from_the_start is None else _Later(from_the_start, optimiser.before)
    name = file_name(optimiser)
    if name is None or importlib.util.find_spec(f"{__name__}.{name}") is None:
        return None
    return cast(WrittenOptimiser, importlib.import_module(f"{__name__}.{name}"))
