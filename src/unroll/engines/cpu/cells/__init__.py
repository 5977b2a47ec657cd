"""One time step of each cell as machine code: the files of `model/cells` once more, for vectors of units.

One file per cell; a file supplies `Step`, a final `CellStep` with the cell's choices as its fields. Products and time
loops are in engines/cpu/layer_code.py. A *record* connects them with a step: a few groups of H numbers for each step
and row. Products write x·W_x + b into the first groups and h·W_h into the last ones; a group that receives both holds
their sum. A step reads its record, and may overwrite it with what the backward pass needs. The backward pass overwrites
it with the gradients of the products' results.

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
    """The results of a step."""

    state: Vectors
    record: Sequence[Value | None]  # by group; None leaves a group that h fills as it is
    kept: Vectors = ()  # more numbers for the backward pass


class Before(NamedTuple):
    """The inputs of a step of the backward pass."""

    record: Vectors  # as the forward step left it
    kept: Vectors
    state: Vectors  # before the step
    state_after: Vectors
    d_state: Vectors  # the gradient of the state after the step
    w: Vectors  # the extra parameters
    bound: Value  # the clip of a gradient that flows into a gate's sum

    def clipped(self, code: Code, gradient: Value) -> Value:
        """The gradient, clipped to the bound."""
        return gradient.at_most(self.bound).at_least(code.constant(0.0) - self.bound)


class Back(NamedTuple):
    """The results of a step of the backward pass."""

    record: Vectors  # the gradients of the products' results
    d_state: Sequence[Value | None]  # the gradient of the state before, not through h·W_h; None: no gradient
    d_w: Sequence[tuple[Value, Value]] = ()  # each extra parameter's gradient grows by the product of the two


@dataclass(frozen=True)
class CellStep(ABC):
    """One step, forward and backward."""

    INPUTS: ClassVar[tuple[int, ...]]  # the group of each gate of W_x: together the first groups
    RECURRENT: ClassVar[tuple[int, ...]]  # the group of each gate of W_h, in order: together the last groups
    STATES: ClassVar[int]  # 1 or 2
    KEPT: ClassVar[int] = 0  # vectors in `After.kept`: 0 or 1
    EXTRA: ClassVar[int] = 0  # extra parameters of H numbers each: the rows of w_c

    @classmethod
    def of(cls, cell: RecurrentCell) -> Self:
        """A step with the choices of a cell."""
        return cls()

    @property
    def groups(self) -> int:
        """The number of a record's groups."""
        return self.RECURRENT[-1] + 1

    @property
    def both(self) -> range:
        """The groups that hold the sums of both products."""
        return range(self.RECURRENT[0], len(self.INPUTS))

    @abstractmethod
    def forward(self, code: Code, record: Vectors, state: Vectors, w: Vectors) -> After:
        """The next state, from the products' results, the state and the extra parameters."""

    @abstractmethod
    def backward(self, code: Code, before: Before) -> Back:
        """Apply the chain rule to one step."""


def of(cell: RecurrentCell) -> CellStep | None:
    """A cell's machine code; None if it has no file here."""
    package, _, file = type(cell).__module__.rpartition(".")
    if package != "unroll.model.cells" or importlib.util.find_spec(f"{__name__}.{file}") is None:
        return None
    step: CellStep = importlib.import_module(f"{__name__}.{file}").Step.of(cell)
    return step
