"""What happens in one time step, as machine code: the files of `cells` once more, for vectors of units.

One file a cell; a file supplies `Step`, a final `CellStep` with the cell's choices as its fields. Products and time
loops are not its concern: see engines/cpu/layer_code.py. Between them stands a *record*: a few groups of H numbers for
each step and row. Products bring x·W_x + b into the first groups and h·W_h into the last ones; where both arrive, their
sum.
A step reads that, and may leave in its place what the way back will want to know. The way back leaves the gradients of
what the products brought.

Everything is padded to whole panels with weights of 0; a padded unit's state begins at 0 and must stay there.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from unroll.engines.cpu.builder import Code, Value
from unroll.model.cells import RecurrentCell

Vectors = Sequence[Value]


class After(NamedTuple):
    """Of a step."""

    state: Vectors
    record: Sequence[Value | None]  # by group; None: what is there may stay, where h brings some of it
    kept: Vectors = ()  # what else the way back wants to know


class Before(NamedTuple):
    """Of a step on the way back: what it is given."""

    record: Vectors  # as the step left it
    kept: Vectors
    state: Vectors  # before the step
    state_after: Vectors
    d_state: Vectors  # what arrives at the state after the step
    w: Vectors  # the extra parameters
    bound: Value  # of a gradient that flows into a gate's sum

    def clipped(self, code: Code, gradient: Value) -> Value:
        """Within the bound."""
        return gradient.at_most(self.bound).at_least(code.constant(0.0) - self.bound)


class Back(NamedTuple):
    """Of a step on the way back: what it gives."""

    record: Vectors  # the gradients of what the products brought
    d_state: Sequence[Value | None]  # of the state before, not through h·W_h; None: nothing
    d_w: Sequence[tuple[Value, Value]] = ()  # whose product each extra parameter's gradient gains


@dataclass(frozen=True)
class CellStep(ABC):
    """One step, there and back."""

    INPUTS: ClassVar[tuple[int, ...]]  # the group of each gate of W_x: together the first groups
    RECURRENT: ClassVar[tuple[int, ...]]  # of each gate of W_h, in this order: together the last groups
    STATES: ClassVar[int]  # 1 or 2
    KEPT: ClassVar[int] = 0  # 0 or 1
    EXTRA: ClassVar[int] = 0  # extra parameters, of H numbers each: the rows of w_c

    @classmethod
    def of(cls, cell: RecurrentCell) -> Self:
        """With the choices that a cell has made."""
        return cls()

    @property
    def groups(self) -> int:
        """Of a record."""
        return self.RECURRENT[-1] + 1

    @property
    def both(self) -> range:
        """The groups that are sums of both products."""
        return range(self.RECURRENT[0], len(self.INPUTS))

    @abstractmethod
    def forward(self, code: Code, record: Vectors, state: Vectors, w: Vectors) -> After:
        """What the products have brought, the state, and the extra parameters, to the next state."""

    @abstractmethod
    def backward(self, code: Code, before: Before) -> Back:
        """The chain rule through one step."""


def of(cell: RecurrentCell) -> CellStep | None:
    """A cell as machine code; None where there is no such file."""
    package, _, file = type(cell).__module__.rpartition(".")
    if package != "unroll.model.cells" or importlib.util.find_spec(f"{__name__}.{file}") is None:
        return None
    found: CellStep = importlib.import_module(f"{__name__}.{file}").Step.of(cell)
    return found
