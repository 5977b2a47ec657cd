"""What arithmetic alone would take: the operations of a training step, and how fast this machine multiplies.

It counts the matrix products that any implementation must do. Looking up a one-hot input is no product; softmax,
gates and Adam are negligible beside them.

Shapes: T time, B rows, K scored positions, H hidden, G gate columns, D dense, V vocabulary.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch

from unroll.engines import devices
from unroll.studies.benchmark.numerics import DTYPES, numerics
from unroll.studies.benchmark.shapes import Shape

SIZES = {"cuda": 8192, "cpu": 2048}
TIMES = {"cuda": 10, "cpu": 5}
GATES = 4
PASSES = 3  # forward, and on the way back one for the inputs and one for the weights


class Operations(NamedTuple):
    """Floating-point operations of one run's training step, a multiplication and an addition counted as two."""

    recurrent: int
    inputs: int  # of the layers above the first
    dense: int
    out: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def operations(shape: Shape) -> Operations:
    """The products of a training step; the head's only at scored positions."""
    read = shape.k2 * shape.rows
    scored = shape.scheme.scored * shape.rows
    square = PASSES * 2 * read * shape.hidden * GATES * shape.hidden
    return Operations(
        recurrent=shape.layers * square,
        inputs=(shape.layers - 1) * square,
        dense=PASSES * 2 * scored * shape.hidden * shape.dense,
        out=PASSES * 2 * scored * shape.dense * shape.vocabulary,
    )


@dataclass(frozen=True)
class Rate:
    """How fast a square product of matrices of this size was."""

    size: int
    ms: tuple[float, ...]  # every repetition

    @property
    def operations_per_second(self) -> float:
        """From the median."""
        return 2 * self.size**3 / (statistics.median(self.ms) / 1e3)


def measure_rate(precision: str, device: torch.device, size: int | None = None) -> Rate:
    """Multiply random matrices. Zeros would draw less power, and the processor would run faster than on numbers."""
    size = size or SIZES[devices.kind(device)]
    generator = torch.Generator(device).manual_seed(0)
    a, b = (
        torch.randn(size, size, device=device, generator=generator, dtype=torch.float32).to(DTYPES[precision])
        for _ in range(2)
    )
    out = torch.empty_like(a)
    measured = []
    with numerics(precision):
        for _ in range(2 + TIMES[devices.kind(device)]):
            devices.wait(device)
            began = time.perf_counter()
            torch.mm(a, b, out=out)
            devices.wait(device)
            measured.append((time.perf_counter() - began) * 1e3)
    return Rate(size, tuple(measured[2:]))
