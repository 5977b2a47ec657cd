"""Steps on the CPU without a framework's overhead for every token: weights are arranged once, steps fill fixed buffers.

Products are torch's, which multiplies a few rows with a large matrix fast; all else is NumPy on the same memory.
"""

from __future__ import annotations

import torch

from unroll.engines.cpu.steppers.host_cells import ARRANGED
from unroll.engines.cpu.steppers.host_progressive import Progressive
from unroll.engines.cpu.steppers.host_weights import Weights
from unroll.engines.cpu.steppers.host_windows import NaiveWindows, Rolling
from unroll.model.model import Model
from unroll.model.steppers import Stepper

STEPPERS: dict[str, type[Progressive] | type[Rolling] | type[NaiveWindows]] = {
    "progressive": Progressive,
    "windowed": Rolling,
    "windowed-naive": NaiveWindows,
}


def supports(model: Model, procedure: str) -> bool:
    """Whether the model computes on the CPU, with a cell that has a step here."""
    return model.device.type == "cpu" and type(model.cell) in ARRANGED and procedure in STEPPERS


def prepare(model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
    """Arrange weights and allocate buffers."""
    with torch.no_grad():
        return STEPPERS[procedure](Weights(model), k2, capacity)
