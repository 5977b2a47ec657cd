"""The learning rate falls by the same amount at every batch, to a share of what it was."""

from __future__ import annotations

from collections.abc import Sequence

from unroll.experiment.spelled import SHARE, Key

DEPENDS_ON_LENGTH = True
WATCHES = False
KEYS = {"final": Key(0.0, SHARE)}


def factor(batch: int, batches: int, history: Sequence[tuple[int, float]], final: float) -> float:
    """1 at the first batch; `final` would come after the last."""
    return 1 - (1 - final) * (batch - 1) / batches
