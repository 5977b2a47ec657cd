"""Top-k: only the k likeliest tokens; ties with the k-th stay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PLACE, TYPE, DEFAULT = 20, int, None
HELP = "Only the k likeliest tokens."
ALLOWED = "at least 1"


def allowed(value: int) -> bool:
    """One token at least stays."""
    return value >= 1


def apply(logits_BV: Tensor, value: int) -> Tensor:
    """Rule out everything below the k-th."""
    kth = logits_BV.topk(min(value, logits_BV.shape[-1])).values[:, -1:]
    return logits_BV.masked_fill(logits_BV < kth, -math.inf)
