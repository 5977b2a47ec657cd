"""Top-a: only tokens at least a times as likely as the square of the likeliest; strict where the model is sure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PLACE, TYPE, DEFAULT = 50, float, None
HELP = "Only tokens at least a times as likely as the likeliest squared."
ALLOWED = "between 0 and 1"


def allowed(value: float) -> bool:
    """The likeliest token always stays."""
    return 0 <= value <= 1


def apply(logits_BV: Tensor, value: float) -> Tensor:
    """Rule out what is less likely than a times the likeliest squared."""
    p_BV = logits_BV.softmax(-1)
    return logits_BV.masked_fill(p_BV < value * p_BV.amax(-1, keepdim=True) ** 2, -math.inf)
