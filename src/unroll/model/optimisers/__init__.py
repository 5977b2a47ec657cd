"""How gradients change the weights. One file an optimiser; a file supplies

    MOMENTS                                               the names of what it remembers of each parameter; may be empty
    update(gradient, moments, learning_rate, count)       -> the amount to subtract, and the moments after

`count` is the number of this update, from 1; a float64 tensor where a step is recorded. Everything carries the run axis
M; `learning_rate` is [M, 1, …]. What every optimiser keeps to:
- it works element by element: a run moves alone as in a fleet, to the last bit;
- it changes nothing in place, and gives as many moments as it names;
- moments begin at 0, and a weight whose gradients have all been 0 does not move: a vocabulary's padding stays 0;
- training that goes on from weights and moments is training that never stopped.

An engine may hold the same formulas once more in its own language, to be fast:
`engines/cpu/optimisers`, `engines/cuda/optimisers`. Without those, torch's operations are what runs, and a run says so.
"""

from __future__ import annotations

from typing import Protocol, cast

from torch import Tensor

from unroll.base import plugins


class Optimiser(Protocol):
    """What every optimiser file is."""

    MOMENTS: tuple[str, ...]

    def update(
        self, gradient: Tensor, moments: tuple[Tensor, ...], learning_rate: Tensor, count: int | Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]: ...


def load(name: str) -> Optimiser:
    """The optimiser behind an option's name."""
    return cast(Optimiser, plugins.load("optimisers", name))


def file_name(optimiser: Optimiser) -> str | None:
    """The name of an optimiser's file in this folder; None for one from elsewhere."""
    package, _, name = str(getattr(optimiser, "__name__", "")).rpartition(".")
    return name if package == __name__ else None
