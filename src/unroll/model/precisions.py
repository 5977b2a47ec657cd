"""Precisions: the type that parameters are kept in, and the type that they are multiplied in.

float32 is the truth. TF32 and bfloat16 keep parameters, optimiser, sums and the cells' memory in float32 and only
multiply in fewer bits: TF32 rounds each factor to 10 bits of fraction, bfloat16 to 7.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Precision(NamedTuple):
    """The types of kept parameters and of multiplied ones."""

    kept: torch.dtype
    products: torch.dtype
    tf32: bool = False


PRECISIONS = {
    "float32": Precision(torch.float32, torch.float32),
    "float64": Precision(torch.float64, torch.float64),
    "tf32": Precision(torch.float32, torch.float32, tf32=True),
    "bfloat16": Precision(torch.float32, torch.bfloat16),
}
