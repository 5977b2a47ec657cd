"""Min-p: only tokens that are at least p times as likely as the likeliest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PLACE, TYPE, DEFAULT = 40, float, None
HELP = "Only tokens at least p times as likely as the likeliest."
ALLOWED = "between 0 and 1"


def allowed(value: float) -> bool:
    """A share of the likeliest token's probability."""
    return 0 <= value <= 1


def apply(logits_BV: Tensor, value: float) -> Tensor:
    """Rule out everything below the likeliest by more than −log p."""
    if value == 0:
        return logits_BV
    return logits_BV.masked_fill(logits_BV < logits_BV.amax(-1, keepdim=True) + math.log(value), -math.inf)
