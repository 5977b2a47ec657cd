"""Temperature: below 1 sharpens the distribution, above 1 flattens it."""

from __future__ import annotations

from torch import Tensor


def apply(logits_BV: Tensor, value: float) -> Tensor:
    """Divide; from the likeliest down, so that the smallest of temperatures overflows to −inf and never to +inf."""
    return (logits_BV - logits_BV.amax(-1, keepdim=True)) / value
