"""Min-p: only tokens that are at least p times as likely as the likeliest."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def apply(logits_BV: Tensor, value: float) -> Tensor:
    """Rule out everything below the likeliest by more than −log p."""
    if value == 0:
        return logits_BV
    return logits_BV.masked_fill(logits_BV < logits_BV.amax(-1, keepdim=True) + math.log(value), -torch.inf)
