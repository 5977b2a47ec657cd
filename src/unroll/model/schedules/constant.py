"""The learning rate stays what it is."""

from __future__ import annotations

from collections.abc import Sequence

DEPENDS_ON_LENGTH = False
WATCHES = False


def factor(batch: int, batches: int, history: Sequence[tuple[int, float]]) -> float:
    """1, always."""
    return 1.0
