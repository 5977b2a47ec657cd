"""Every so many batches the learning rate is multiplied by a number."""

from __future__ import annotations

from collections.abc import Sequence

from unroll.experiment.settings import at_least
from unroll.experiment.spelled import SHARE, Key

DEPENDS_ON_LENGTH = False
WATCHES = False
KEYS = {"every": Key(1000, at_least(1)), "by": Key(0.5, SHARE)}


def factor(batch: int, batches: int, history: Sequence[tuple[int, float]], every: int, by: float) -> float:
    """1 for the first `every` batches, then `by`, then its square, …."""
    return by ** ((batch - 1) // every)
