"""Top-p: the fewest likeliest tokens whose probabilities reach p together."""

from __future__ import annotations

import torch
from torch import Tensor


def apply(logits_BV: Tensor, value: float) -> Tensor:
    """Rule out every token before which the likelier ones already reach p."""
    ranked, order = torch.softmax(logits_BV, -1).sort(dim=-1, descending=True, stable=True)
    reached = (ranked.cumsum(-1) - ranked) >= value
    return logits_BV.masked_fill(torch.zeros_like(reached).scatter(-1, order, reached), -torch.inf)
