"""The learning rate falls by the same ratio at every batch, to a share of what it was."""

from __future__ import annotations

from collections.abc import Sequence

from unroll.experiment.spelled import Key

DEPENDS_ON_LENGTH = True
WATCHES = False
KEYS = {"final": Key(0.01, (lambda v: 0 < v <= 1, "above 0 and at most 1"))}


def factor(batch: int, batches: int, history: Sequence[tuple[int, float]], final: float) -> float:
    """1 at the first batch; `final` would come after the last."""
    return float(final ** ((batch - 1) / batches))
