"""Top-k: only the k likeliest tokens; ties with the k-th stay."""

from __future__ import annotations

import torch
from torch import Tensor


def apply(logits_BV: Tensor, value: int) -> Tensor:
    """Rule out everything below the k-th."""
    kth = logits_BV.topk(min(value, logits_BV.shape[-1])).values[:, -1:]
    return logits_BV.masked_fill(logits_BV < kth, -torch.inf)
