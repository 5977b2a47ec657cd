"""Temperature: below 1 sharpens the distribution, above 1 flattens it."""

from __future__ import annotations

from torch import Tensor


def apply(logits_BV: Tensor, value: float) -> Tensor:
    """Divide."""
    return logits_BV / value
