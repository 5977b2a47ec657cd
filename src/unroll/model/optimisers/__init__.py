"""How gradients change the weights. One file an optimiser; a file supplies

    MOMENTS                                               the names of what it remembers of each parameter; may be empty
    update(gradient, moments, learning_rate, count)       -> the amount to subtract, and the moments after

and, where a user may say more than its name, KEYS: its keys with their defaults (`experiment/spelled.py`), which
`update` takes by name after these. Weight decay and clipping by norm are no optimiser's work: `model/gradients.py`.

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

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, cast

from torch import Tensor

from unroll.base import plugins
from unroll.experiment import spelled


class Optimiser(Protocol):
    """What every optimiser file is."""

    MOMENTS: tuple[str, ...]

    def update(
        self, gradient: Tensor, moments: tuple[Tensor, ...], learning_rate: Tensor, count: int | Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]: ...


class WithKeys:
    """An optimiser whose keys have values: sgd,momentum=0.9."""

    def __init__(self, plugin: Any, keys: Mapping[str, spelled.Number]) -> None:
        self.MOMENTS: tuple[str, ...] = plugin.MOMENTS
        self.update = partial(plugin.update, **keys)
        self.plugin, self.keys = plugin, keys


def load(words: str) -> Optimiser:
    """The optimiser behind an option's words: a name, with keys behind it or without."""
    plugin = plugins.load("optimisers", spelled.name_of(words))
    keys = spelled.values("optimisers", words)
    return cast(Optimiser, WithKeys(plugin, keys) if keys else plugin)


def keys_of(optimiser: Optimiser) -> Mapping[str, spelled.Number]:
    """The values of an optimiser's keys, also where it goes on after earlier updates (`continued.py`)."""
    optimiser = getattr(optimiser, "optimiser", optimiser)
    return optimiser.keys if isinstance(optimiser, WithKeys) else MappingProxyType({})


def file_name(optimiser: Optimiser) -> str | None:
    """The name of an optimiser's file in this folder; None for one from elsewhere."""
    plugin = optimiser.plugin if isinstance(optimiser, WithKeys) else optimiser
    package, _, name = str(getattr(plugin, "__name__", "")).rpartition(".")
    return name if package == __name__ else None
