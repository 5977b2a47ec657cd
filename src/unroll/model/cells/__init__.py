"""What happens in one time step. One file a cell; a file supplies `Cell`, a final `RecurrentCell`.

pre_x is x·W_x + b and pre_h is h·W_h, both products done by the caller. Gradients are clipped element by element
where they flow into a gate's sum of the two; peepholes join behind that point and see the gradient unclipped.

What every cell keeps to:
- `forward` is differentiable, changes nothing in place, and gives states of the shape that it got, of which h is first;
- `backward` and `extra_gradients` are its chain rule: the gradients of autograd, clipped at the sums marked by `clip`;
- each run and each row is computed by itself: alone as among others;
- a cell may leave out pre_h, as minimal recurrent cells do: no gradient reaches W_h then, and it stays as it was. From
  pre_x a gradient must come back.
A cell is plain torch. `engines/cpu/cells` and the CUDA kernels hold the same steps again, to be fast; a cell without
one runs on the kernels `stacked` and `reference`, and a run says so.

Shapes: M runs, T time, B rows, H hidden, G gate columns. States are [M, B, H], pre-activations [M, B, G], extra
parameters [M, …]; over time there is a T after the M.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from unroll.base import plugins

State = tuple[Tensor, ...]
Extra = dict[str, Tensor]
Clip = Callable[[Tensor], Tensor]


def unclipped(sums: Tensor) -> Tensor:
    """The clip of a forward pass that nobody differentiates."""
    return sums


class RecurrentCell(ABC):
    """Parameters, one step, and the step's chain rule."""

    GATES: ClassVar[int]  # G = GATES · H
    STATES: ClassVar[tuple[str, ...]]  # h first

    def __init__(self, peepholes: str) -> None:
        self.peepholes = peepholes  # a choice of the LSTM; other cells have none

    def extra_shapes(self, hidden: int) -> dict[str, tuple[int, ...]]:
        """Parameters beside W_x, W_h and b, by name."""
        return {}

    @abstractmethod
    def forward(
        self, pre_x: Tensor, pre_h: Tensor, state: State, extra: Extra, clip: Clip = unclipped
    ) -> tuple[State, State]:
        """The next state, and what `backward` will need; `clip` marks each gate's sum for autograd."""

    @abstractmethod
    def backward(self, d_state: State, saved: State, extra: Extra, clip: float) -> tuple[Tensor, Tensor, State]:
        """The gradients of the gates' sums, unclipped; of pre_h, clipped; of the state before, not through pre_h."""

    def extra_gradients(self, d_sums: Tensor, before: State, after: State) -> Extra:
        """The gradients of the extra parameters, over all time steps at once."""
        return {}


def load(name: str, peepholes: str) -> RecurrentCell:
    """The cell behind an option's name."""
    cell: RecurrentCell = plugins.load("cells", name).Cell(peepholes)
    return cell
