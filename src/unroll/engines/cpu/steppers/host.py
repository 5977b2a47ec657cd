"""The CPU, without a framework's overhead on every token: weights are arranged once, a step fills buffers that exist.

Products are torch's (it knows how to multiply a few rows with a large matrix), all else is NumPy on the same memory.
"""

from __future__ import annotations

import torch

from unroll.engines.cpu.steppers.host_cells import ARRANGED
from unroll.engines.cpu.steppers.host_progressive import Progressive
from unroll.engines.cpu.steppers.host_weights import Weights
from unroll.engines.cpu.steppers.host_windows import Again, Rolling
from unroll.model.model import Model
from unroll.model.steppers import Stepper

STEPPERS: dict[str, type[Progressive] | type[Rolling] | type[Again]] = {
    "progressive": Progressive,
    "windowed": Rolling,
    "windowed-naive": Again,
}


def supports(model: Model, procedure: str) -> bool:
    """Whether the model computes on the CPU, in one of the cells known here."""
    return model.device.type == "cpu" and type(model.cell) in ARRANGED and procedure in STEPPERS


def prepare(model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
    """Weights arranged, buffers made."""
    with torch.no_grad():
        return STEPPERS[procedure](Weights(model), k2, capacity)
