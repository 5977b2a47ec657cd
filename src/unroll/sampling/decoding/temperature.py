"""Temperature: below 1 sharpens the distribution, above 1 flattens it; 0 is argmax, for which nothing is applied."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unroll.experiment.scheme import as_float

if TYPE_CHECKING:
    from torch import Tensor

PLACE, TYPE, DEFAULT = 10, float, 1.0
HELP = "Below 1 safer, above 1 wilder; 0 is argmax [1]."
ALLOWED = "a number of at least 0 (0 is argmax)"


def allowed(value: float) -> bool:
    """Finite, and not below 0."""
    return 0 <= as_float(value) < math.inf


def apply(logits_BV: Tensor, value: float) -> Tensor:
    """Divide; from the likeliest down, so that the smallest of temperatures overflows to −inf and never to +inf."""
    return (logits_BV - logits_BV.amax(-1, keepdim=True)) / value
