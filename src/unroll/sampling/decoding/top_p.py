"""Top-p: the fewest likeliest tokens whose probabilities reach p together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PLACE, TYPE, DEFAULT = 30, float, None
HELP = "Only the likeliest tokens that reach p together."
ALLOWED = "above 0 and at most 1"


def allowed(value: float) -> bool:
    """A probability that some token adds to."""
    return 0 < value <= 1


def apply(logits_BV: Tensor, value: float) -> Tensor:
    """Rule out every token before which the likelier ones already reach p."""
    ranked, order = logits_BV.softmax(-1).sort(dim=-1, descending=True, stable=True)
    reached = (ranked.cumsum(-1) - ranked) >= value
    return logits_BV.masked_fill(reached.new_zeros(reached.shape).scatter(-1, order, reached), -math.inf)
