"""Steps compiled for this CPU: a token takes a handful of calls, whatever the number of rows.

Shapes: B rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np
import torch

from unroll.engines.cpu import builder, cells
from unroll.engines.cpu.steppers.compiled_weights import DividedRows, HeadRows, Scratch, Weights
from unroll.engines.cpu.steppers.compiled_windows import Rolling
from unroll.model.model import Model
from unroll.model.steppers import Array, Ids, Stepper

# Bytes of weights that one core reads fast enough for a single row. Torch multiplies larger weights, which its threads
# divide. A core of AMD's Zen reads its third-level cache several times as fast as a core of an Intel server.
MOST, MOST_ON_ZEN = 1 << 22, 1 << 24


def supports(model: Model, procedure: str) -> bool:
    """Whether the model computes on the CPU and its cell's code can be compiled."""
    return (
        procedure in STEPPERS
        and model.device.type == "cpu"
        and cells.of(model.cell) is not None
        and builder.available()
        and not (procedure == "progressive" and _bytes(model) > _most())
    )


def prepare(model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
    """Arrange weights, allocate buffers and compile code."""
    with torch.no_grad():
        return STEPPERS[procedure](Weights(model), k2, capacity)


@cache
def _most() -> int:
    from llvmlite import binding

    return MOST_ON_ZEN if binding.get_host_cpu_name().startswith("znver") else MOST


def _bytes(model: Model) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters.values())


class Progressive:
    """Progressive: the state runs on."""

    def __init__(self, weights: Weights, k2: int, capacity: int) -> None:
        self._weights, self._rows = weights, 0
        self._head = HeadRows(weights, capacity)
        self._scratch = Scratch(weights, capacity)
        self._state = [[weights.zeros(capacity, weights.H) for _ in layer] for layer in weights.first]
        self._state[-1][0] = self._head.h  # the top layer's h is what the head reads
        self._ids = np.zeros(capacity, np.int64)
        state_at = [tuple(s.data_ptr() for s in layer) for layer in self._state]
        buffers = self._ids.ctypes.data, state_at, self._scratch
        self._layers = [
            DividedRows(layer.step, partial(weights.step_call, n, *buffers)) for n, layer in enumerate(weights.layers)
        ]

    def begin(self, rows: int) -> None:
        """Hold this many rows, none of which has read anything."""
        self._rows = rows
        self.restart(range(rows))

    def restart(self, rows: Sequence[int]) -> None:
        """Make these rows forget what they have read."""
        for layer, first in zip(self._state, self._weights.first, strict=True):
            for s, value in zip(layer, first, strict=True):
                s.numpy()[list(rows)] = value

    def read(self, ids_B: Ids) -> None:
        """Let each row read one token."""
        self._ids[: len(ids_B)] = ids_B
        for layer in self._layers:
            layer.do(self._rows)

    def logits(self) -> Array:
        """Each row's logits."""
        return self._head.logits(self._rows)

    def take(self, rows: Sequence[int]) -> None:
        """Let row b go on from where row rows[b] stood."""
        for layer in self._state:
            for s in layer:
                states = s.numpy()
                states[: len(rows)] = states[list(rows)]
        self._rows = len(rows)


STEPPERS: dict[str, type[Progressive] | type[Rolling]] = {"progressive": Progressive, "windowed": Rolling}
